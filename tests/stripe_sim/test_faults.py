"""Faults of the wire and of the server, each against the book of what really happened."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import stripe

from deploy.stripe_sim.faults import FaultPlanError, parse_plan, read_plan
from deploy.stripe_sim.testing import RunningSim, running_sim
from tests.stripe_sim.calls import confirm, create, error_of, headers_of
from tests.stripe_sim.conftest import open_client

CONFIRMS = "^/v1/payment_intents/[^/]+/confirm$"


def _confirm_fault(effect: dict[str, Any], place: str = "before", **match: Any) -> dict[str, Any]:
    return {"name": "drill", "match": {"path": CONFIRMS, **match}, "effect": effect, "place": place}


@pytest.mark.parametrize(("place", "moved"), [("before", 0), ("after", 1)])
async def test_stored_500(sim: RunningSim, client: stripe.StripeClient, place: str, moved: int) -> None:
    """A stored 500 is replayed under its key, whether the money moved (place after) or not (place before)."""
    sim.set_faults(_confirm_fault({"kind": "error", "status": 500, "stored": True}, place, only=[1]))
    intent = await create(client)
    for _ in range(2):
        with pytest.raises(stripe.APIError) as caught:
            await confirm(client, intent.id, "k1")
        assert caught.value.http_status == 500
    assert sim.requests[-1].replayed
    assert len(sim.movements) == moved
    found = await client.v1.payment_intents.retrieve_async(intent.id)
    assert found.status == ("succeeded" if moved else "requires_confirmation")


@pytest.mark.parametrize(("place", "moved"), [("before", 0), ("after", 1)])
async def test_dropped_connection(
    sim: RunningSim, client: stripe.StripeClient, place: str, moved: int
) -> None:
    """The connection closes without an answer; resending the same key moves the money once in either case."""
    sim.set_faults(_confirm_fault({"kind": "drop"}, place, only=[1]))
    intent = await create(client)
    with pytest.raises(stripe.APIConnectionError):
        await confirm(client, intent.id, "k1")
    assert len(sim.movements) == moved
    assert sim.requests[-1].status is None
    assert (await confirm(client, intent.id, "k1")).status == "succeeded"
    assert len(sim.movements) == 1
    assert sim.requests[-1].replayed is bool(moved)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Stripe-Rate-Limited-Reason": "endpoint-rate", "Retry-After": "3"},
        {"Stripe-Should-Retry": "true"},
    ],
)
async def test_429_is_not_stored(
    sim: RunningSim, client: stripe.StripeClient, headers: dict[str, str]
) -> None:
    """A 429 comes before the idempotency layer, with whichever headers: nothing ran, the key is unused."""
    sim.set_faults(_confirm_fault({"kind": "error", "status": 429, "headers": headers}, only=[1]))
    intent = await create(client)
    with pytest.raises(stripe.RateLimitError) as caught:
        await confirm(client, intent.id, "k1")
    told = {name.lower(): value for name, value in (caught.value.headers or {}).items()}
    assert {name: told.get(name.lower()) for name in headers} == headers
    paid = await confirm(client, intent.id, "k1")
    assert "idempotent-replayed" not in headers_of(paid)
    assert len(sim.movements) == 1


@pytest.mark.parametrize("status", [401, 409, 503])
async def test_unstored_errors_leave_the_key_unused(
    sim: RunningSim, client: stripe.StripeClient, status: int
) -> None:
    """An error in front of everything executes nothing and stores nothing."""
    sim.set_faults(_confirm_fault({"kind": "error", "status": status}, only=[1]))
    intent = await create(client)
    with pytest.raises(stripe.StripeError) as caught:
        await confirm(client, intent.id, "k1")
    assert caught.value.http_status == status
    assert sim.movements == []
    assert (await confirm(client, intent.id, "k1")).status == "succeeded"
    assert not sim.requests[-1].replayed


async def test_unstored_error_after_the_booking(sim: RunningSim, client: stripe.StripeClient) -> None:
    """A gateway's 503 behind the booking hides a success, which the same key then shows."""
    sim.set_faults(_confirm_fault({"kind": "error", "status": 503}, "after", only=[1]))
    intent = await create(client)
    with pytest.raises(stripe.APIError):
        await confirm(client, intent.id, "k1")
    assert len(sim.movements) == 1
    assert (await confirm(client, intent.id, "k1")).status == "succeeded"
    assert sim.requests[-1].replayed


async def test_lock_timeout(sim: RunningSim, client: stripe.StripeClient) -> None:
    """The other kind of 429 is told by its code."""
    effect = {
        "kind": "error",
        "status": 429,
        "code": "lock_timeout",
        "headers": {"Stripe-Should-Retry": "true"},
    }
    sim.set_faults(_confirm_fault(effect))
    intent = await create(client)
    with pytest.raises(stripe.RateLimitError) as caught:
        await confirm(client, intent.id)
    assert error_of(caught.value)["code"] == "lock_timeout"


async def test_every_nth_half_of_them_booked(sim: RunningSim, client: stripe.StripeClient) -> None:
    """Every third create is a stored 500; the dice, not the place, say which of them were booked."""
    effect = {"kind": "error", "status": 500, "stored": True, "book": 0.5}
    sim.set_faults({"name": "third", "match": {"path": "^/v1/payment_intents$", "nth": 3}, "effect": effect})
    failed = 0
    for number in range(60):
        try:
            await create(client, f"k{number}")
        except stripe.APIError:
            failed += 1
    booked = sum(entry.fate == "executed, error stored" for entry in sim.requests)
    skipped = sum(entry.fate == "not executed, error stored" for entry in sim.requests)
    assert failed == 20
    assert booked + skipped == 20
    assert 4 <= booked <= 16
    assert sim.summary()["payment_intents"] == 40 + booked


async def test_one_more_fault_changes_nothing_for_the_others() -> None:
    """Each fault has dice of its own: the same keys meet it, with and without a second fault in the plan."""
    dice = {"name": "dice", "match": {"probability": 0.3}, "effect": {"kind": "error", "status": 503}}
    other = {"name": "other", "match": {"probability": 0.5}, "effect": {"kind": "delay", "seconds": 0}}
    met = []
    for plan in ([dice], [other, dice]):
        async with running_sim(seed=11) as sim, open_client(sim.url) as client:
            sim.seed("cus_1", "pm_card_visa_1")
            sim.set_faults(*plan)
            for number in range(40):
                try:
                    await create(client, f"k{number}")
                except stripe.APIError:
                    continue
            met.append([entry.ordinal for entry in sim.requests if "dice" in entry.faults])
    assert met[0] == met[1]
    assert 3 <= len(met[0]) <= 25


async def test_match_by_customer_key_and_count(sim: RunningSim, client: stripe.StripeClient) -> None:
    """A fault can name a customer (also through a PaymentIntent), a key, a range and a number of requests."""
    sim.seed("cus_2", "pm_card_visa_2")
    error = {"kind": "error", "status": 503}
    sim.set_faults(
        {"name": "customer", "match": {"customer": "cus_2", "path": CONFIRMS}, "effect": error},
        {"name": "key", "match": {"key": "^bad"}, "effect": error},
        {
            "name": "once",
            "match": {"path": "^/v1/customers$", "from_request": 2, "times": 1},
            "effect": error,
        },
    )
    one = await create(client)
    two = await create(client, customer="cus_2", payment_method="pm_card_visa_2")
    assert (await confirm(client, one.id)).status == "succeeded"
    with pytest.raises(stripe.APIError):
        await confirm(client, two.id)
    with pytest.raises(stripe.APIError):
        await create(client, "bad-key")
    outcomes = []
    for _ in range(4):
        try:
            await client.v1.customers.create_async()
            outcomes.append(200)
        except stripe.APIError:
            outcomes.append(503)
    assert outcomes == [200, 503, 200, 200]


async def test_match_by_account(sim: RunningSim, client: stripe.StripeClient) -> None:
    """A fault can meet one account alone; the others do not notice."""
    sim.set_faults(
        {"name": "revoked", "match": {"account": "acct_bad"}, "effect": {"kind": "error", "status": 401}}
    )
    for account, outcome in (("acct_bad", 401), ("acct_good", 200), (None, 200)):
        options: Any = {} if account is None else {"stripe_account": account}
        try:
            await client.v1.customers.create_async({}, options)
            status = 200
        except stripe.AuthenticationError:
            status = 401
        assert status == outcome, account


@pytest.mark.parametrize(
    "document",
    [
        {"faults": 1},
        [{"name": "a"}],
        [{"name": "a", "effect": {"kind": "explode"}}],
        [{"name": "a", "effect": {"kind": "drop"}, "match": {"nht": 3}}],
        [{"name": "a", "effect": {"kind": "drop"}, "match": {"path": "("}}],
        [{"name": "a", "effect": {"kind": "error", "book": 2}}],
        [{"name": "a", "effect": {"kind": "drop"}}, {"name": "a", "effect": {"kind": "drop"}}],
    ],
)
def test_a_wrong_plan_is_refused(document: Any) -> None:
    """A plan with a mistake in it is refused as a whole, with a reason."""
    with pytest.raises(FaultPlanError):
        parse_plan(document)


def test_plan_survives_its_own_print(tmp_path: Path) -> None:
    """What the plan shows of itself is a plan file again."""
    path = tmp_path / "plan.json"
    path.write_text('[{"name": "a", "match": {"nth": 20}, "place": "after", "effect": {"kind": "drop"}}]')
    plan = read_plan(path)
    assert parse_plan([fault.show() for fault in plan]) == plan


async def test_endpoint_rate_limit(sim: RunningSim, client: stripe.StripeClient) -> None:
    """A limited endpoint answers 429 with its reason once the bucket is empty; other endpoints go on."""
    sim.change(endpoint_rates={"POST /v1/payment_intents": 1.0})
    intent = await create(client)
    statuses = []
    for _ in range(20):
        try:
            await create(client)
        except stripe.RateLimitError as error:
            statuses.append((error.headers or {})["Stripe-Rate-Limited-Reason"])
    assert set(statuses) == {"endpoint-rate"}
    assert (await confirm(client, intent.id)).status == "succeeded"


async def test_a_client_that_hangs_up_is_charged_all_the_same(sim: RunningSim) -> None:
    """A timeout at the client stops nothing at the server: the confirm given up on moves the money."""
    sim.set_faults(_confirm_fault({"kind": "delay", "seconds": 0.3}))
    async with open_client(sim.url) as client:
        intent = await create(client)
        sending = asyncio.create_task(confirm(client, intent.id, "k1"))
        while len(sim.requests) < 2:  # noqa: ASYNC110 - the request is received by the server's own task
            await asyncio.sleep(0)
        sending.cancel()
        async with asyncio.timeout(10):
            while not sim.movements:  # noqa: ASYNC110 - the booking is made by the server's own task
                await asyncio.sleep(0.01)
        assert (await confirm(client, intent.id, "k1")).status == "succeeded"
    assert len(sim.movements) == 1
