"""Webhooks: signed, retried, delayed, doubled, reordered, lost, and early."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import stripe

from deploy.stripe_sim.testing import RunningSim, running_sim
from tests.stripe_sim.calls import confirm, create
from tests.stripe_sim.conftest import open_client
from tests.stripe_sim.receiver import Receiver, open_receiver


async def listen(
    client: stripe.StripeClient, receiver: Receiver, *types: str, **params: Any
) -> stripe.WebhookEndpoint:
    """Register a receiver for these types of events, or for all."""
    body: Any = {"url": receiver.url, "enabled_events": list(types) or ["*"], **params}
    endpoint = await client.v1.webhook_endpoints.create_async(body)
    assert endpoint.secret is not None
    receiver.secret = endpoint.secret
    return endpoint


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A merchant's endpoint."""
    async with open_receiver() as opened:
        yield opened


async def test_what_was_asked_for_arrives_signed(
    sim: RunningSim, client: stripe.StripeClient, receiver: Receiver
) -> None:
    """An endpoint gets the events it listens to, signed as the SDK's own check expects, and no others."""
    await listen(client, receiver, "payment_intent.succeeded", "charge.succeeded")
    intent = await create(client, "create_1", metadata={"order": "1"})
    await confirm(client, intent.id, "confirm_1")
    await sim.deliver()
    assert receiver.types == ["charge.succeeded", "payment_intent.succeeded"]
    event = receiver.events[-1]
    assert event.data.object["id"] == intent.id
    assert event.data.object["metadata"]["order"] == "1"
    assert event.request is not None
    assert (event.request.id, event.request.idempotency_key) == (sim.requests[-1].request_id, "confirm_1")
    assert receiver.headers[0]["Content-Type"] == "application/json; charset=utf-8"
    assert receiver.refused == []


async def test_events_share_a_second(
    sim: RunningSim, client: stripe.StripeClient, receiver: Receiver
) -> None:
    """`created` is in whole seconds, so it cannot order events of one payment."""
    await listen(client, receiver)
    await create(client, confirm=True)
    await sim.deliver()
    assert len(receiver.events) == 3
    assert len({event.created for event in receiver.events}) == 1
    assert len({event.id for event in receiver.events}) == 3


async def test_a_refused_webhook_is_tried_again_by_the_clock(
    sim: RunningSim, client: stripe.StripeClient, receiver: Receiver
) -> None:
    """Anything but a 2xx is tried again after each step of the backoff, until three days are over."""
    sim.change(webhook_retry_seconds=[300, 3_600])
    receiver.answer = lambda _event: 503
    await listen(client, receiver, "payment_intent.succeeded")
    await create(client, confirm=True)
    await sim.deliver()
    failing = await client.v1.events.list_async({"delivery_success": False})
    assert [(event.type, event.pending_webhooks) for event in failing.data] == [
        ("payment_intent.succeeded", 1)
    ]
    sim.clock.advance(299)
    await sim.deliver()
    assert len(sim.deliveries) == 1
    sim.clock.advance(1)
    await sim.deliver()
    assert len(sim.deliveries) == 2
    sim.clock.advance(30 * 86_400)
    await sim.deliver()
    assert [(entry.attempt, entry.status) for entry in sim.deliveries] == [(1, 503), (2, 503), (3, 503)]
    assert sim.deliveries[-1].next_at is None
    assert receiver.events == []


async def test_a_retry_succeeds_and_is_signed_anew(
    sim: RunningSim, client: stripe.StripeClient, receiver: Receiver
) -> None:
    """The second attempt carries its own signature; then the event counts as delivered."""
    answers = iter([500, 200])
    receiver.answer = lambda _event: next(answers)
    await listen(client, receiver, "payment_intent.succeeded")
    await create(client, confirm=True)
    await sim.deliver()
    sim.clock.advance(300)
    await sim.deliver()
    assert receiver.types == ["payment_intent.succeeded"]
    delivered = await client.v1.events.list_async(
        {"delivery_success": True, "type": "payment_intent.succeeded"}
    )
    assert [event.pending_webhooks for event in delivered.data] == [0]


async def test_an_endpoint_that_is_down_counts_as_a_failure(
    sim: RunningSim, client: stripe.StripeClient, receiver: Receiver
) -> None:
    """No connection, a redirect and a foreign host are failed attempts, and nothing foreign is contacted."""
    receiver.answer = lambda _event: 302
    await listen(client, receiver, "payment_intent.created")
    for url in ("http://127.0.0.1:9/hook", "https://example.com/hook"):
        body: Any = {"url": url, "enabled_events": ["payment_intent.created"]}
        await client.v1.webhook_endpoints.create_async(body)
    await create(client)
    await sim.deliver()
    outcomes = {entry.url: (entry.status, entry.outcome) for entry in sim.deliveries}
    assert outcomes[receiver.url] == (302, "refused")
    assert outcomes["http://127.0.0.1:9/hook"] == (None, "failed: ClientConnectorError")
    assert outcomes["https://example.com/hook"][1].startswith("not sent")


@pytest.mark.parametrize(
    ("effect", "arrives"),
    [
        ({"kind": "drop"}, []),
        ({"kind": "duplicate"}, ["created", "created"]),
        ({"kind": "twin"}, ["created", "created"]),
        ({"kind": "before_response"}, ["created"]),
    ],
)
async def test_faults_of_one_delivery(
    sim: RunningSim,
    client: stripe.StripeClient,
    receiver: Receiver,
    effect: dict[str, Any],
    arrives: list[str],
) -> None:
    """A webhook gets lost, comes twice, comes as two events of one change, or before the answer."""
    await listen(client, receiver, "payment_intent.created")
    sim.set_webhook_faults({"name": "drill", "effect": effect})
    await create(client)
    if effect["kind"] != "before_response":
        await sim.deliver()
    assert receiver.types == [f"payment_intent.{name}" for name in arrives]
    ids = {event.id for event in receiver.events}
    assert len(ids) == (2 if effect["kind"] == "twin" else min(1, len(arrives)))


async def test_a_late_webhook_waits_for_the_clock(
    sim: RunningSim, client: stripe.StripeClient, receiver: Receiver
) -> None:
    """A delay is by the simulator's clock."""
    await listen(client, receiver, "payment_intent.created")
    sim.set_webhook_faults({"name": "late", "effect": {"kind": "delay", "seconds": 3_600}})
    await create(client)
    sim.clock.advance(3_599)
    await sim.deliver()
    assert receiver.events == []
    sim.clock.advance(1)
    await sim.deliver()
    assert receiver.types == ["payment_intent.created"]


async def test_webhooks_overtake_each_other(
    sim: RunningSim, client: stripe.StripeClient, receiver: Receiver
) -> None:
    """A held event arrives after the next one; the last one is let go after a minute."""
    await listen(client, receiver, "payment_intent.created", "payment_intent.succeeded")
    reorder = {"kind": "reorder", "after": 1}
    sim.set_webhook_faults({"name": "overtake", "match": {"type": "created"}, "effect": reorder})
    await create(client, confirm=True)
    await sim.deliver()
    assert receiver.types == ["payment_intent.succeeded", "payment_intent.created"]
    await create(client)
    await sim.deliver()
    assert len(receiver.events) == 2
    sim.clock.advance(60)
    await sim.deliver()
    assert receiver.types[2:] == ["payment_intent.created"]


@pytest.mark.parametrize("kind", ["bad_signature", "old_signature"])
async def test_signatures_that_do_not_verify(
    sim: RunningSim, client: stripe.StripeClient, receiver: Receiver, kind: str
) -> None:
    """The SDK refuses a signature of another secret and one that is too old; the retry is good."""
    await listen(client, receiver, "payment_intent.created")
    sim.set_webhook_faults({"name": "forged", "effect": {"kind": kind, "seconds": 600}})
    await create(client)
    await sim.deliver()
    assert len(receiver.refused) == 1
    sim.clock.advance(300)
    await sim.deliver()
    assert receiver.types == ["payment_intent.created"]


async def test_the_same_seed_meets_the_same_faults(receiver: Receiver) -> None:
    """Which webhooks a probability hits depends on the seed alone."""
    hit = []
    for _ in range(2):
        async with running_sim(seed=5) as sim, open_client(sim.url) as client:
            sim.clock.freeze(1_790_000_000)
            sim.seed("cus_1", "pm_card_visa_1")
            await listen(client, receiver, "payment_intent.created")
            match = {"probability": 0.5}
            sim.set_webhook_faults({"name": "coin", "match": match, "effect": {"kind": "drop"}})
            for _ in range(12):
                await create(client)
            await sim.deliver()
            hit.append([entry.outcome for entry in sim.deliveries])
    assert hit[0] == hit[1]
    assert set(hit[0]) == {"delivered", "dropped by a fault"}


async def test_several_endpoints_with_secrets_of_their_own(
    sim: RunningSim, client: stripe.StripeClient, receiver: Receiver
) -> None:
    """Each endpoint gets its copy under its own secret; a deleted or disabled one gets nothing."""
    async with open_receiver() as other:
        one = await listen(client, receiver, "payment_intent.created")
        two = await listen(client, other, "payment_intent.created")
        assert receiver.secret != other.secret
        await create(client)
        await sim.deliver()
        assert len(receiver.events) == len(other.events) == 1
        await client.v1.webhook_endpoints.delete_async(one.id)
        await client.v1.webhook_endpoints.update_async(two.id, {"disabled": True})
        await create(client)
        await sim.deliver()
        assert len(receiver.events) == len(other.events) == 1


async def test_rolling_a_secret(sim: RunningSim, client: stripe.StripeClient, receiver: Receiver) -> None:
    """While both secrets are good each signs, so either verifies; after the overlap only the new one does."""
    endpoint = await listen(client, receiver, "payment_intent.created")
    async with aiohttp.ClientSession() as session:
        document = {"endpoint": endpoint.id, "overlap_seconds": 3_600}
        async with session.post(f"{sim.url}/_sim/webhooks/roll", json=document) as answer:
            new_secret = (await answer.json())["secret"]
    await create(client)
    await sim.deliver()
    assert receiver.headers[-1]["Stripe-Signature"].count("v1=") == 2
    old_secret, receiver.secret = receiver.secret, new_secret
    await create(client)
    await sim.deliver()
    assert len(receiver.events) == 2
    sim.clock.advance(3_600)
    receiver.secret = old_secret
    await create(client)
    await sim.deliver()
    assert len(receiver.refused) == 1


async def test_connect_endpoints(sim: RunningSim, client: stripe.StripeClient, receiver: Receiver) -> None:
    """A Connect endpoint gets the events of other accounts, with their id; an ordinary one gets its own."""
    sim.seed("cus_1", "pm_card_visa_1", account="acct_shop")
    await listen(client, receiver, "payment_intent.created", connect=True)
    await create(client)
    await create(client, account="acct_shop")
    await sim.deliver()
    assert [event.account for event in receiver.events] == ["acct_shop"]


async def test_time_travel_settles_and_tells(
    sim: RunningSim, client: stripe.StripeClient, receiver: Receiver
) -> None:
    """Moving the clock settles a debit and sends its event by itself, without a request behind it."""
    sim.seed("cus_1", "pm_usBankAccount_1")
    await listen(client, receiver, "payment_intent.succeeded")
    await create(client, confirm=True, payment_method="pm_usBankAccount_1")
    sim.clock.advance(5 * 86_400)
    await sim.deliver()
    assert receiver.types == ["payment_intent.succeeded"]
    request = receiver.events[0].request
    assert request is not None
    assert (request.id, request.idempotency_key) == (None, None)


async def test_deliveries_survive_a_restart(tmp_path: Any, receiver: Receiver) -> None:
    """A webhook that waits for its next attempt is delivered by the next process."""
    receiver.answer = lambda _event: 500
    async with running_sim(state_dir=tmp_path) as sim, open_client(sim.url) as client:
        sim.clock.freeze(1_790_000_000)
        sim.simulator.save_clock()
        sim.seed("cus_1", "pm_card_visa_1")
        await listen(client, receiver, "payment_intent.created")
        await create(client)
        await sim.deliver()
    receiver.answer = lambda _event: 200
    async with running_sim(state_dir=tmp_path) as sim, open_client(sim.url) as client:
        pending = await client.v1.events.list_async({"delivery_success": False})
        assert len(pending.data) == 1
        sim.clock.advance(300)
        await sim.deliver()
        assert receiver.types == ["payment_intent.created"]
        assert (await client.v1.events.list_async({"delivery_success": False})).data == []


async def test_sending_an_event_once_more(
    sim: RunningSim, client: stripe.StripeClient, receiver: Receiver
) -> None:
    """An event can be sent again by hand, as from the Dashboard."""
    await listen(client, receiver, "payment_intent.created")
    await create(client)
    await sim.deliver()
    async with aiohttp.ClientSession() as session:
        document = {"event": receiver.events[0].id}
        async with session.post(f"{sim.url}/_sim/webhooks/resend", json=document) as answer:
            assert await answer.json() == {"sent_to": 1}
    await sim.deliver()
    assert len({event.id for event in receiver.events}) == 1
    assert len(receiver.events) == 2


@pytest.mark.parametrize(
    "params", [{"url": "hook"}, {"enabled_events": ["payment_intent.suceeded"]}, {"enabled_events": []}]
)
async def test_endpoints_that_cannot_be(client: stripe.StripeClient, params: dict[str, Any]) -> None:
    """An endpoint needs a URL with a scheme and the names of events that exist."""
    body: Any = {"url": "https://example.com", "enabled_events": ["*"], **params}
    with pytest.raises(stripe.InvalidRequestError):
        await client.v1.webhook_endpoints.create_async(body)
