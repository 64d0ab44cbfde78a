"""What both servers do with payments."""

from typing import Any

import pytest
import stripe

from tests.stripe_sim.conformance.requests import attach, error_of, order, pay


async def test_two_steps(client: stripe.StripeClient, customer: str) -> None:
    """Create moves nothing, confirm off session pays, and metadata is on the charge."""
    method = await attach(client, customer)
    body = order(customer=customer, payment_method=method, metadata={"order": "1"})
    intent = await client.v1.payment_intents.create_async(body)
    assert (intent.status, intent.latest_charge) == ("requires_confirmation", None)
    paid = await client.v1.payment_intents.confirm_async(intent.id, {"off_session": True})
    assert (paid.status, paid.amount_received) == ("succeeded", 2_000)
    charge = await client.v1.charges.retrieve_async(str(paid.latest_charge))
    assert (charge.paid, charge.captured, charge.metadata.to_dict()) == (True, True, {"order": "1"})


async def test_a_second_confirm_is_refused(client: stripe.StripeClient) -> None:
    """A paid PaymentIntent cannot be confirmed again; the error carries it."""
    paid = await pay(client)
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await client.v1.payment_intents.confirm_async(paid.id)
    error = error_of(caught.value)
    assert (caught.value.http_status, error["code"]) == (400, "payment_intent_unexpected_state")
    assert error["payment_intent"]["status"] == "succeeded"


@pytest.mark.parametrize(
    ("method", "code", "decline_code"),
    [
        ("pm_card_visa_chargeDeclined", "card_declined", "generic_decline"),
        ("pm_card_visa_chargeDeclinedInsufficientFunds", "card_declined", "insufficient_funds"),
        ("pm_card_visa_chargeDeclinedLostCard", "card_declined", "lost_card"),
        ("pm_card_chargeDeclinedExpiredCard", "expired_card", None),
        ("pm_card_chargeDeclinedProcessingError", "processing_error", None),
    ],
)
async def test_declines(
    client: stripe.StripeClient, method: str, code: str, decline_code: str | None
) -> None:
    """A decline is a 402 with the PaymentIntent, which is open again, and the failed charge."""
    with pytest.raises(stripe.CardError) as caught:
        await pay(client, method)
    error = error_of(caught.value)
    assert (error["type"], error["code"]) == ("card_error", code)
    assert decline_code in {None, error.get("decline_code")}
    assert error["payment_intent"]["status"] == "requires_payment_method"
    assert (await client.v1.charges.retrieve_async(error["charge"])).status == "failed"


async def test_authentication_off_session(client: stripe.StripeClient, customer: str) -> None:
    """A bank that asks for its customer makes an off-session payment a 402."""
    method = await attach(client, customer, "pm_card_authenticationRequired")
    with pytest.raises(stripe.CardError) as caught:
        await pay(client, method, customer=customer, off_session=True)
    assert error_of(caught.value)["code"] == "authentication_required"


async def test_authentication_on_session(client: stripe.StripeClient) -> None:
    """On session the same card asks for an action, with a 200."""
    assert (await pay(client, "pm_card_authenticationRequired")).status == "requires_action"


async def test_cancel(client: stripe.StripeClient) -> None:
    """An open PaymentIntent can be canceled once; a canceled one is final."""
    intent = await client.v1.payment_intents.create_async(order())
    gone = await client.v1.payment_intents.cancel_async(intent.id, {"cancellation_reason": "abandoned"})
    assert (gone.status, gone.cancellation_reason) == ("canceled", "abandoned")
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await client.v1.payment_intents.cancel_async(intent.id)
    assert error_of(caught.value)["code"] == "payment_intent_unexpected_state"


async def test_manual_capture(client: stripe.StripeClient) -> None:
    """An authorization is captured in part; the rest is released."""
    held = await pay(client, capture_method="manual")
    assert (held.status, held.amount_capturable) == ("requires_capture", 2_000)
    paid = await client.v1.payment_intents.capture_async(held.id, {"amount_to_capture": 1_500})
    assert (paid.status, paid.amount_received) == ("succeeded", 1_500)


async def test_refunds(client: stripe.StripeClient) -> None:
    """Refunds add up to the charge and no further."""
    paid = await pay(client)
    refunds = client.v1.refunds
    assert (await refunds.create_async({"payment_intent": paid.id, "amount": 500})).amount == 500
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await refunds.create_async({"payment_intent": paid.id, "amount": 1_501})
    assert caught.value.http_status == 400
    assert (await refunds.create_async({"payment_intent": paid.id})).amount == 1_500
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await refunds.create_async({"payment_intent": paid.id})
    assert caught.value.code == "charge_already_refunded"


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"amount": 49}, "amount_too_small"),
        ({"amount": None}, "parameter_missing"),
        ({"currency": None}, "parameter_missing"),
        ({"surprise": "1"}, "parameter_unknown"),
        ({"customer": "cus_nobody_at_all"}, "resource_missing"),
        ({"payment_method": "pm_nobody_at_all"}, "resource_missing"),
    ],
)
async def test_refused_parameters(client: stripe.StripeClient, params: dict[str, Any], code: str) -> None:
    """What cannot be right is a 400 that says why."""
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await client.v1.payment_intents.create_async(order(**params))
    assert (caught.value.http_status, caught.value.code) == (400, code)


@pytest.mark.parametrize(
    "metadata",
    [{"k" * 41: "v"}, {"k": "v" * 501}, {f"k{number}": "v" for number in range(51)}],
)
async def test_metadata_limits(client: stripe.StripeClient, metadata: dict[str, str]) -> None:
    """Fifty keys of forty characters with values of five hundred, and no more."""
    with pytest.raises(stripe.InvalidRequestError):
        await client.v1.payment_intents.create_async(order(metadata=metadata))
