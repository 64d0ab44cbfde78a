"""What both servers do with idempotency keys."""

import pytest
import stripe

from tests.stripe_sim.conformance.requests import error_of, new_key, order, replayed


async def test_a_key_is_answered_once(client: stripe.StripeClient) -> None:
    """The second request with a key gets the first one's answer, and says so."""
    key = new_key()
    create = client.v1.payment_intents.create_async
    first = await create(order(), {"idempotency_key": key})
    second = await create(order(), {"idempotency_key": key})
    assert first.id == second.id
    assert (replayed(first), replayed(second)) == (False, True)


async def test_another_body_is_refused(client: stripe.StripeClient) -> None:
    """The same key with other parameters is a 400 `idempotency_error`."""
    key = new_key()
    await client.v1.payment_intents.create_async(order(), {"idempotency_key": key})
    with pytest.raises(stripe.IdempotencyError) as caught:
        await client.v1.payment_intents.create_async(order(amount=2_001), {"idempotency_key": key})
    assert caught.value.http_status == 400


async def test_another_endpoint_is_refused(client: stripe.StripeClient) -> None:
    """A key belongs to the endpoint that it was first used with."""
    key = new_key()
    intent = await client.v1.payment_intents.create_async(order(), {"idempotency_key": key})
    with pytest.raises(stripe.IdempotencyError) as caught:
        await client.v1.payment_intents.cancel_async(intent.id, {}, {"idempotency_key": key})
    assert caught.value.http_status == 400


async def test_a_mistake_leaves_the_key_unused(client: stripe.StripeClient) -> None:
    """A request that fails validation does not spend its key."""
    key = new_key()
    with pytest.raises(stripe.InvalidRequestError):
        await client.v1.payment_intents.create_async(order(amount=None), {"idempotency_key": key})
    intent = await client.v1.payment_intents.create_async(order(), {"idempotency_key": key})
    assert not replayed(intent)


async def test_a_decline_is_replayed(client: stripe.StripeClient) -> None:
    """A decline is an answer like any other: the same key gets the same one."""
    key = new_key()
    body = order(payment_method="pm_card_visa_chargeDeclined", confirm=True)
    seen = []
    for _ in range(2):
        with pytest.raises(stripe.CardError) as caught:
            await client.v1.payment_intents.create_async(body, {"idempotency_key": key})
        seen.append(error_of(caught.value)["payment_intent"]["id"])
    assert seen[0] == seen[1]


async def test_a_long_key_is_refused(client: stripe.StripeClient) -> None:
    """A key has at most 255 characters."""
    with pytest.raises(stripe.StripeError) as caught:
        await client.v1.payment_intents.create_async(order(), {"idempotency_key": "k" * 256})
    assert caught.value.http_status == 400
