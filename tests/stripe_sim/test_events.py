"""Events: what happened, who asked for it, and for how long it is remembered."""

from pathlib import Path
from typing import Any

import pytest
import stripe

from deploy.stripe_sim.testing import RunningSim, running_sim
from tests.stripe_sim.calls import confirm, create
from tests.stripe_sim.conftest import open_client

DAY_SECONDS = 86_400


async def types_of(client: stripe.StripeClient, **params: Any) -> list[str]:
    """Return the types of the events that a list shows, oldest first."""
    body: Any = {"limit": 100, **params}
    page = await client.v1.events.list_async(body)
    return [str(event.type) for event in page.data][::-1]


async def test_an_event_names_the_request_and_its_key(sim: RunningSim, client: stripe.StripeClient) -> None:
    """`request.idempotency_key` is the key that was sent: the one place where the API shows it."""
    intent = await create(client, "create_1")
    await confirm(client, intent.id, "confirm_1")
    page = await client.v1.events.list_async(
        {"types": ["payment_intent.created", "payment_intent.succeeded"]}
    )
    assert [(event.type, event.request and event.request.idempotency_key) for event in page.data] == [
        ("payment_intent.succeeded", "confirm_1"),
        ("payment_intent.created", "create_1"),
    ]
    request = page.data[0].request
    assert request is not None
    assert request.id == sim.requests[1].request_id


async def test_a_replay_makes_no_event(client: stripe.StripeClient) -> None:
    """The same key again changes nothing, so nothing happened."""
    for _ in range(3):
        await create(client, "create_1", confirm=True)
    assert await types_of(client) == [
        "payment_intent.created",
        "charge.succeeded",
        "payment_intent.succeeded",
    ]


async def test_a_payload_is_a_snapshot(client: stripe.StripeClient) -> None:
    """An event shows its object as it was then, whatever became of it."""
    intent = await create(client)
    await confirm(client, intent.id)
    created = (await client.v1.events.list_async({"type": "payment_intent.created"})).data[0]
    assert created.data.object["status"] == "requires_confirmation"
    assert (await client.v1.events.retrieve_async(created.id)).data.object[
        "status"
    ] == "requires_confirmation"


async def test_filters_of_the_list(sim: RunningSim, client: stripe.StripeClient) -> None:
    """Types, families of types and the created window narrow the list; cursors go on."""
    started_at = int(sim.clock.now())
    for _ in range(3):
        await create(client, confirm=True)
        sim.clock.advance(10)
    assert await types_of(client, type="charge.*") == ["charge.succeeded"] * 3
    assert len(await types_of(client, created={"gte": started_at + 10, "lt": started_at + 20})) == 3
    events = client.v1.events
    first = await events.list_async({"limit": 4})
    second = await events.list_async({"limit": 4, "starting_after": first.data[-1].id})
    third = await events.list_async({"limit": 4, "starting_after": second.data[-1].id})
    assert (first.has_more, second.has_more, third.has_more) == (True, True, False)
    assert len({event.id for page in (first, second, third) for event in page.data}) == 9
    with pytest.raises(stripe.InvalidRequestError):
        await events.list_async({"type": "charge.succeeded", "types": ["charge.failed"]})
    with pytest.raises(stripe.InvalidRequestError):
        await events.list_async({"types": [f"charge.{number}" for number in range(21)]})


async def test_events_are_forgotten_after_thirty_days(sim: RunningSim, client: stripe.StripeClient) -> None:
    """The list goes back thirty days, and so does an event by its id."""
    await create(client)
    event = (await client.v1.events.list_async()).data[0]
    sim.clock.advance(30 * DAY_SECONDS)
    assert await types_of(client) == ["payment_intent.created"]
    sim.clock.advance(1)
    assert await types_of(client) == []
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await client.v1.events.retrieve_async(event.id)
    assert caught.value.http_status == 404


@pytest.mark.parametrize("event_id", ["evt_nobody", "evt_", "evt_0123456789abcdef00000000", "pi_1"])
async def test_events_that_are_not_there(client: stripe.StripeClient, event_id: str) -> None:
    """An id that no event has is a 404, also one that looks like an event's."""
    await create(client)
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await client.v1.events.retrieve_async(event_id)
    assert caught.value.http_status == 404


async def test_updates_say_what_changed(client: stripe.StripeClient) -> None:
    """An update's event carries the fields as they were before."""
    await client.v1.customers.update_async("cus_1", {"name": "One"})
    event = (await client.v1.events.list_async({"type": "customer.updated"})).data[0]
    assert event.to_dict()["data"]["previous_attributes"] == {"name": None}


async def test_events_survive_a_restart(tmp_path: Path) -> None:
    """The next process shows the same events under the same ids."""
    seen: list[Any] = []
    for _ in range(2):
        async with running_sim(state_dir=tmp_path) as sim, open_client(sim.url) as client:
            if not seen:
                sim.seed("cus_1", "pm_card_visa_1")
                paid = await create(client, confirm=True)
                await client.v1.refunds.create_async({"payment_intent": paid.id})
            page = await client.v1.events.list_async()
            balance = await client.v1.balance_transactions.list_async()
            seen.append(
                [event.to_dict() for event in page.data] + [entry.to_dict() for entry in balance.data]
            )
    assert seen[0] == seen[1]
    assert len(seen[0]) == 7


async def test_accounts_share_nothing(sim: RunningSim, client: stripe.StripeClient) -> None:
    """Events, refunds, balance and search of one account are invisible to another, also by id."""
    sim.change(search_lag_seconds=0)
    paid = await create(client, confirm=True)
    refund = await client.v1.refunds.create_async({"payment_intent": paid.id})
    event = (await client.v1.events.list_async()).data[0]
    other: Any = {"stripe_account": "acct_other"}
    v1 = client.v1
    assert (await v1.events.list_async(options=other)).data == []
    assert (await v1.balance_transactions.list_async(options=other)).data == []
    assert (await v1.refunds.list_async(options=other)).data == []
    found = await v1.payment_intents.search_async({"query": "status:'succeeded'"}, options=other)
    assert found.data == []
    for attempt in (
        v1.events.retrieve_async(event.id, options=other),
        v1.refunds.retrieve_async(refund.id, options=other),
        v1.balance_transactions.retrieve_async(str(refund.balance_transaction), options=other),
        v1.refunds.create_async({"payment_intent": paid.id}, options=other),
    ):
        with pytest.raises(stripe.InvalidRequestError):
            await attempt
