"""Stripe's list of events, page by page: one that can't be read whole is no evidence, and ends the list."""

import json
from typing import Any

import pytest

from activities.gateway import events
from activities.gateway.findings import EventPage
from activities.gateway.stripe_gateway import StripeGateway
from tests.gateway.till import ACCOUNT, gateway_at, open_till
from tests.gateway.wire import answering, http, raw_server
from workflows.domain.errors import InvariantViolation

EVENT = {
    "id": "evt_1",
    "object": "event",
    "type": "payment_intent.succeeded",
    "created": 1_932_796_800,
    "livemode": False,
    "data": {"object": {"id": "pi_1", "object": "payment_intent"}},
}


async def read_all(gateway: StripeGateway, *types: str) -> list[EventPage]:
    """Return every page of these types."""
    pages = gateway.list_events(
        ACCOUNT,
        types=types or ("payment_intent.succeeded",),
        created_from_epoch_seconds=0,
        created_to_epoch_seconds=None,
    )
    return [page async for page in pages]


async def read_raw(body: dict[str, Any]) -> EventPage:
    """Return the only page of a server that answers so."""
    answer = answering(http("200 OK", json.dumps(body).encode(), "Content-Type: application/json"))
    async with raw_server(answer) as wire, gateway_at(wire.url) as gateway:
        [page] = await read_all(gateway)
    return page


async def test_all_pages_come_newest_first_and_only_of_the_types_that_were_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight PaymentIntents, three to a page; what was created is not asked for beside what was confirmed."""
    monkeypatch.setattr(events, "PAGE_SIZE_MAX", 3)
    async with open_till() as till:
        ids = [(await till.prepare(version=version)).id for version in range(1, 9)]
        await till.confirm(ids[0])
        created = await read_all(till.gateway, "payment_intent.created")
        others = await read_all(till.gateway, "payment_intent.succeeded", "charge.succeeded")
    assert [len(page.events) for page in created] == [3, 3, 2]
    assert [one.payment_intent for page in created for one in page.events] == ids[::-1]
    assert [page.has_more for page in created] == [True, True, False]
    [page] = others
    assert {one.type for one in page.events} == {"payment_intent.succeeded", "charge.succeeded"}
    assert {one.payment_intent for one in page.events} == {ids[0]}


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        (
            {"data": [EVENT, {**EVENT, "created": "now"}], "has_more": False},
            "an item of the list can't be read",
        ),
        ({"data": [EVENT, 7], "has_more": True}, "an item of the list can't be read"),
        ({"data": [], "has_more": True}, "an empty page that says there is more"),
        ({"data": {}, "has_more": False}, "HTTP 200"),
    ],
)
async def test_a_page_that_can_t_be_read_whole_is_incomplete(body: dict[str, Any], failure: str) -> None:
    """What could be read is there, and nothing may be concluded from what is not."""
    page = await read_raw(body)
    assert (page.complete, page.has_more) == (False, False)
    assert page.failure == f"/v1/events: {failure}"


@pytest.mark.parametrize("count", [0, events.TYPES_MAX + 1])
async def test_a_question_that_stripe_would_refuse_is_not_asked(count: int) -> None:
    """One question names one to twenty types."""
    async with gateway_at("http://127.0.0.1:9") as gateway:
        pages = gateway.list_events(
            ACCOUNT,
            types=[f"a.b{number}" for number in range(count)],
            created_from_epoch_seconds=0,
            created_to_epoch_seconds=None,
        )
        with pytest.raises(InvariantViolation):
            await anext(pages)
