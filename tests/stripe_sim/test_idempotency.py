"""The idempotency layer, as reference documentation and recordings describe it."""

import asyncio
from pathlib import Path

import pytest
import stripe

from deploy.stripe_sim.testing import RunningSim, running_sim
from tests.stripe_sim.calls import confirm, create, error_of, headers_of
from tests.stripe_sim.conftest import open_client

DAY_SECONDS = 86_400


async def test_same_key_replays_the_first_answer(sim: RunningSim, client: stripe.StripeClient) -> None:
    """The same request under the same key gets the same bytes, marked as a replay; nothing new is made."""
    first = await create(client, "k1")
    again = await create(client, "k1")
    assert again.last_response is not None
    assert first.last_response is not None
    assert again.last_response.body == first.last_response.body
    assert headers_of(again)["idempotent-replayed"] == "true"
    assert headers_of(again)["original-request"] == headers_of(first)["request-id"]
    assert headers_of(again)["request-id"] != headers_of(first)["request-id"]
    assert "idempotent-replayed" not in headers_of(first)
    assert sim.summary()["payment_intents"] == 1
    assert sim.summary()["repeated_posts"] == 1
    assert [entry.fate for entry in sim.requests] == ["executed", "replayed"]


async def test_other_parameters_are_refused(sim: RunningSim, client: stripe.StripeClient) -> None:
    """The same key with another amount is a 400 of type idempotency_error, without a code."""
    await create(client, "k1")
    with pytest.raises(stripe.IdempotencyError) as caught:
        await create(client, "k1", amount=2_001)
    assert caught.value.http_status == 400
    assert "code" not in error_of(caught.value)
    assert sim.summary()["payment_intents"] == 1


async def test_other_path_is_refused(client: stripe.StripeClient) -> None:
    """A key belongs to its path, ids included."""
    intent = await create(client, "k1")
    with pytest.raises(stripe.IdempotencyError, match="same endpoint"):
        await confirm(client, intent.id, "k1")


async def test_order_of_parameters_does_not_matter(sim: RunningSim, client: stripe.StripeClient) -> None:
    """The comparison is of parameters, not of bytes."""
    options: stripe.RequestOptions = {"idempotency_key": "k1"}
    for params in ({"name": "a", "description": "b"}, {"description": "b", "name": "a"}):
        await client.v1.customers.create_async(params, options)  # type: ignore[arg-type]
    assert sim.requests[0].body_sha256 != sim.requests[1].body_sha256
    assert sim.requests[1].replayed


async def test_key_in_flight_is_a_conflict(sim: RunningSim, client: stripe.StripeClient) -> None:
    """While the first request runs, a second one with its key gets 409; afterwards it gets the replay."""
    sim.set_faults(
        {
            "name": "slow",
            "match": {"only": [1]},
            "effect": {"kind": "delay", "seconds": 0.3},
            "place": "before",
        }
    )
    first = asyncio.create_task(create(client, "k1"))
    while len(sim.simulator.keys) == 0:  # noqa: ASYNC110 - the key is taken by the server's own task
        await asyncio.sleep(0)
    with pytest.raises(stripe.APIError) as caught:
        await create(client, "k1")
    assert caught.value.http_status == 409
    assert error_of(caught.value)["code"] == "idempotency_key_in_use"
    intent = await first
    assert (await create(client, "k1")).id == intent.id
    assert [entry.fate for entry in sim.requests] == ["executed", "conflict", "replayed"]


async def test_decline_is_replayed(sim: RunningSim, client: stripe.StripeClient) -> None:
    """A 402 is stored like a success: the same key declines again without a new attempt."""
    sim.seed("cus_1", "pm_card_chargeCustomerFail_1")
    intent = await create(client, payment_method="pm_card_chargeCustomerFail_1")
    bodies = []
    for _ in range(2):
        with pytest.raises(stripe.CardError) as caught:
            await confirm(client, intent.id, "k1")
        bodies.append(caught.value.http_body)
    assert bodies[0] == bodies[1]
    assert sim.requests[-1].replayed
    assert len(sim.simulator.account("acct_sim").charges.in_order) == 1


async def test_parameter_error_leaves_the_key_unused(client: stripe.StripeClient) -> None:
    """A request that fails validation did not begin to execute: its key may carry another body."""
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await create(client, "k1", amount=10)
    assert caught.value.code == "amount_too_small"
    assert (await create(client, "k1")).status == "requires_confirmation"


async def test_refused_api_key_leaves_the_key_unused(sim: RunningSim, client: stripe.StripeClient) -> None:
    """A 401 is not stored."""
    sim.change(revoked=True)
    with pytest.raises(stripe.AuthenticationError):
        await create(client, "k1")
    sim.change(revoked=False)
    intent = await create(client, "k1")
    assert "idempotent-replayed" not in headers_of(intent)


async def test_key_is_forgotten_at_24_hours(sim: RunningSim, client: stripe.StripeClient) -> None:
    """At 23:59:59 the key replays; at 24:00:00 the same request is a fresh one."""
    first = await create(client, "k1")
    sim.clock.advance(DAY_SECONDS - 1)
    assert (await create(client, "k1")).id == first.id
    sim.clock.advance(1)
    assert (await create(client, "k1")).id != first.id


async def test_keys_can_be_kept_longer(sim: RunningSim, client: stripe.StripeClient) -> None:
    """With the switch on, a key still replays just after 24 hours, and not after 36."""
    sim.change(keys_kept_longer=True)
    first = await create(client, "k1")
    sim.clock.advance(DAY_SECONDS + 1)
    assert (await create(client, "k1")).id == first.id
    sim.clock.advance(DAY_SECONDS / 2)
    assert (await create(client, "k1")).id != first.id


async def test_keys_on_get_have_no_effect(client: stripe.StripeClient) -> None:
    """A GET under a used key is answered, and its own key is not remembered."""
    intent = await create(client, "k1")
    found = await client.v1.payment_intents.retrieve_async(intent.id, None, {"idempotency_key": "k1"})
    assert found.id == intent.id
    assert "idempotent-replayed" not in headers_of(found)


async def test_long_key_is_refused(client: stripe.StripeClient) -> None:
    """A key has up to 255 characters."""
    await create(client, "k" * 255)
    with pytest.raises(stripe.InvalidRequestError, match="255"):
        await create(client, "k" * 256)


async def test_accounts_share_nothing(sim: RunningSim, client: stripe.StripeClient) -> None:
    """Each account has its own data and its own keys."""
    sim.seed("cus_1", "pm_card_visa_1", account="acct_other")
    here = await create(client, "k1")
    there = await create(client, "k1", account="acct_other")
    assert here.id != there.id
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await client.v1.payment_intents.retrieve_async(here.id, None, {"stripe_account": "acct_other"})
    assert caught.value.code == "resource_missing"
    assert caught.value.http_status == 404


async def test_wrong_state_is_stored(sim: RunningSim, client: stripe.StripeClient) -> None:
    """A 400 about the PaymentIntent's state comes from the execution, so it is replayed."""
    intent = await create(client)
    await confirm(client, intent.id, "k1")
    for _ in range(2):
        with pytest.raises(stripe.InvalidRequestError) as caught:
            await confirm(client, intent.id, "k2")
        assert caught.value.code == "payment_intent_unexpected_state"
        assert error_of(caught.value)["payment_intent"]["status"] == "succeeded"
    assert sim.requests[-1].replayed


async def test_everything_survives_a_restart(tmp_path: Path) -> None:
    """Objects, keys, book, journal, clock, settings and faults are there again with the same directory."""
    fault = {"name": "later", "match": {"only": [99]}, "effect": {"kind": "drop"}}
    async with running_sim(state_dir=tmp_path, seed=7) as before:
        before.clock.advance(1_000)
        before.simulator.save_clock()
        before.seed("cus_1", "pm_card_visa_1", "pm_usBankAccount_1")
        before.set_faults(fault)
        before.change(latency_ms=1)
        async with open_client(before.url) as client:
            first = await create(client, "k1")
            paid = await confirm(client, first.id, "k2")
            debit = await create(client, payment_method="pm_usBankAccount_1", confirm=True, off_session=True)
        summary = before.summary()
    async with running_sim(state_dir=tmp_path, seed=8) as after, open_client(after.url) as client:
        assert after.summary() == summary
        assert after.simulator.seed == 7
        assert after.simulator.settings.latency_ms == 1
        assert after.simulator.faults.counts() == {"later": [3, 0]}
        assert after.clock.offset_seconds == 1_000
        assert [entry.fate for entry in after.requests] == ["executed"] * 3
        assert (await create(client, "k1")).id == first.id
        again = await confirm(client, first.id, "k2")
        assert again.last_response is not None
        assert paid.last_response is not None
        assert again.last_response.body == paid.last_response.body
        after.clock.advance(5 * DAY_SECONDS)
        settled = await client.v1.payment_intents.retrieve_async(debit.id)
        assert settled.status == "succeeded"


async def test_a_torn_line_is_dropped(tmp_path: Path) -> None:
    """A log whose last line was cut by a kill loads without it, and goes on whole."""
    async with running_sim(state_dir=tmp_path) as before:
        before.seed("cus_1", "pm_card_visa_1")
    with (tmp_path / "stripe_sim.jsonl").open("ab") as file:
        file.write(b'["customer","acct_sim",["cus_2"')
    async with running_sim(state_dir=tmp_path) as middle:
        assert list(middle.simulator.account("acct_sim").customers.by_id) == ["cus_1"]
        middle.seed("cus_3")
    async with running_sim(state_dir=tmp_path) as after:
        assert list(after.simulator.account("acct_sim").customers.by_id) == ["cus_1", "cus_3"]
