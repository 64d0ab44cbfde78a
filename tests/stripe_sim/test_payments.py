"""PaymentIntents: states, declines, authentication, debits, and the parameters that are refused."""

from typing import Any

import pytest
import stripe

from deploy.stripe_sim.behaviours import find_documented_id
from deploy.stripe_sim.testing import RunningSim
from tests.stripe_sim.calls import confirm, create, error_of

DAY_SECONDS = 86_400


async def test_create_then_confirm_moves_money_once(sim: RunningSim, client: stripe.StripeClient) -> None:
    """Creating moves nothing; confirming moves the amount and carries the metadata into book and charge."""
    intent = await create(client, metadata={"identity": "a1"})
    assert intent.status == "requires_confirmation"
    assert intent.latest_charge is None
    assert sim.movements == []
    paid = await confirm(client, intent.id)
    assert paid.status == "succeeded"
    assert paid.amount_received == 2_000
    (entry,) = sim.movements
    assert (entry.payment_intent, entry.charge) == (intent.id, paid.latest_charge)
    assert (entry.customer, entry.amount, entry.currency) == ("cus_1", 2_000, "usd")
    assert entry.metadata == {"identity": "a1"}
    charges = await client.v1.charges.list_async({"payment_intent": intent.id})
    assert [charge.metadata["identity"] for charge in charges.data] == ["a1"]
    assert (await client.v1.charges.retrieve_async(entry.charge)).paid


async def test_create_with_confirm(sim: RunningSim, client: stripe.StripeClient) -> None:
    """One call can do both; a documented test id stands for a new payment method."""
    intent = await create(
        client, confirm=True, off_session=True, customer=None, payment_method="pm_card_visa"
    )
    assert intent.status == "succeeded"
    assert intent.payment_method != "pm_card_visa"
    assert len(sim.movements) == 1


async def test_confirm_twice_is_an_unexpected_state(sim: RunningSim, client: stripe.StripeClient) -> None:
    """A PaymentIntent succeeds at most once, under whatever keys: the error carries it."""
    intent = await create(client)
    await confirm(client, intent.id, "k1")
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await confirm(client, intent.id, "k2")
    assert caught.value.http_status == 400
    assert caught.value.code == "payment_intent_unexpected_state"
    assert error_of(caught.value)["payment_intent"]["id"] == intent.id
    assert len(sim.movements) == 1


async def test_cancel(sim: RunningSim, client: stripe.StripeClient) -> None:
    """An unpaid PaymentIntent can be canceled, once, and not confirmed any more; a paid one cannot."""
    intent = await create(client)
    gone = await client.v1.payment_intents.cancel_async(intent.id, {"cancellation_reason": "duplicate"})
    assert (gone.status, gone.cancellation_reason) == ("canceled", "duplicate")
    assert gone.canceled_at == int(sim.clock.now())
    paid = await create(client, confirm=True)
    for attempt in (
        client.v1.payment_intents.cancel_async(intent.id),
        confirm(client, intent.id),
        client.v1.payment_intents.cancel_async(paid.id),
    ):
        with pytest.raises(stripe.InvalidRequestError) as caught:
            await attempt
        assert caught.value.code == "payment_intent_unexpected_state"


@pytest.mark.parametrize(
    ("method_id", "code", "decline_code"),
    [
        ("pm_card_chargeCustomerFail_1", "card_declined", "generic_decline"),
        ("pm_card_visa_chargeDeclined_1", "card_declined", "generic_decline"),
        ("pm_card_visa_chargeDeclinedInsufficientFunds_1", "card_declined", "insufficient_funds"),
        ("pm_card_visa_chargeDeclinedLostCard_1", "card_declined", "lost_card"),
        ("pm_card_visa_chargeDeclinedStolenCard_1", "card_declined", "stolen_card"),
        ("pm_card_visa_chargeDeclinedVelocityLimitExceeded_1", "card_declined", "card_velocity_exceeded"),
        ("pm_card_chargeDeclinedExpiredCard_1", "expired_card", "expired_card"),
        ("pm_card_chargeDeclinedIncorrectCvc_1", "incorrect_cvc", "incorrect_cvc"),
        ("pm_card_chargeDeclinedProcessingError_1", "processing_error", "processing_error"),
        ("pm_card_authenticationRequired_1", "authentication_required", "authentication_required"),
    ],
)
async def test_declines(
    sim: RunningSim, client: stripe.StripeClient, method_id: str, code: str, decline_code: str
) -> None:
    """A decline is a 402 with the code, the failed charge and the PaymentIntent, which wants a new card."""
    sim.seed("cus_1", method_id)
    intent = await create(client, payment_method=method_id)
    with pytest.raises(stripe.CardError) as caught:
        await confirm(client, intent.id)
    error = error_of(caught.value)
    assert caught.value.http_status == 402
    assert (error["type"], error["code"], error["decline_code"]) == ("card_error", code, decline_code)
    shown = error["payment_intent"]
    assert shown["status"] == "requires_payment_method"
    assert shown["payment_method"] is None
    assert shown["latest_charge"] == error["charge"]
    assert shown["last_payment_error"]["code"] == code
    charge = await client.v1.charges.retrieve_async(error["charge"])
    assert (charge.status, charge.failure_code) == ("failed", code)
    assert sim.movements == []


async def test_a_declined_payment_can_be_confirmed_with_another_card(
    sim: RunningSim, client: stripe.StripeClient
) -> None:
    """After a decline a confirm must name a payment method; a good one pays the same PaymentIntent."""
    sim.seed("cus_1", "pm_card_chargeCustomerFail_1")
    intent = await create(client, payment_method="pm_card_chargeCustomerFail_1")
    with pytest.raises(stripe.CardError):
        await confirm(client, intent.id)
    with pytest.raises(stripe.InvalidRequestError, match="missing a payment method"):
        await confirm(client, intent.id)
    assert (await confirm(client, intent.id, payment_method="pm_card_visa_1")).status == "succeeded"


async def test_declines_first_then_succeeds(sim: RunningSim, client: stripe.StripeClient) -> None:
    """A recovering card declines as often as its id says, and pays after that."""
    card = "pm_card_declineTwiceThenSucceed_1"
    sim.seed("cus_1", card)
    intent = await create(client)
    for _ in range(2):
        with pytest.raises(stripe.CardError):
            await confirm(client, intent.id, payment_method=card)
    assert (await confirm(client, intent.id, payment_method=card)).status == "succeeded"


async def test_too_many_confirms_cancel(sim: RunningSim, client: stripe.StripeClient) -> None:
    """With a limit on confirms set, the last decline cancels the PaymentIntent."""
    sim.change(confirms_max=1)
    sim.seed("cus_1", "pm_card_chargeCustomerFail_1")
    intent = await create(client, payment_method="pm_card_chargeCustomerFail_1")
    with pytest.raises(stripe.CardError):
        await confirm(client, intent.id)
    assert (await client.v1.payment_intents.retrieve_async(intent.id)).status == "canceled"


async def test_authentication_on_session(sim: RunningSim, client: stripe.StripeClient) -> None:
    """With the customer present, the same card asks for an action and no money moves."""
    sim.seed("cus_1", "pm_card_authenticationRequired_1")
    intent = await create(client, payment_method="pm_card_authenticationRequired_1")
    asked = await confirm(client, intent.id, off_session=False)
    assert asked.status == "requires_action"
    assert asked.next_action is not None
    assert sim.movements == []


@pytest.mark.parametrize(
    ("method_id", "days", "status"),
    [
        ("pm_usBankAccount_1", 4, "succeeded"),
        ("pm_sepaDebit_1", 5, "succeeded"),
        ("pm_usBankAccount_insufficientFunds_1", 4, "requires_payment_method"),
    ],
)
async def test_debits_settle_by_the_clock(
    sim: RunningSim, client: stripe.StripeClient, method_id: str, days: int, status: str
) -> None:
    """A bank debit is processing until its day has come, then paid or failed, as of that moment."""
    sim.seed("cus_1", method_id)
    started_at = sim.clock.now()
    intent = await create(client, payment_method=method_id)
    assert (await confirm(client, intent.id)).status == "processing"
    sim.clock.advance(days * DAY_SECONDS - 1)
    assert (await client.v1.payment_intents.retrieve_async(intent.id)).status == "processing"
    sim.clock.advance(DAY_SECONDS)
    found = await client.v1.payment_intents.retrieve_async(intent.id)
    assert found.status == status
    expected = [started_at + days * DAY_SECONDS] if status == "succeeded" else []
    assert [entry.at for entry in sim.movements] == expected


@pytest.mark.parametrize(
    ("params", "code", "param"),
    [
        ({"amount": 49}, "amount_too_small", "amount"),
        ({"amount": 0}, "parameter_invalid_integer", "amount"),
        ({"amount": "ten"}, "parameter_invalid_integer", "amount"),
        ({"amount": None}, "parameter_missing", "amount"),
        ({"amount": 100_000_000}, "amount_too_large", "amount"),
        ({"amount": 12_345, "currency": "isk"}, "parameter_invalid_integer", "amount"),
        ({"amount": 49, "currency": "jpy"}, "amount_too_small", "amount"),
        ({"currency": "xyz"}, None, "currency"),
        ({"currency": None}, "parameter_missing", "currency"),
        ({"customer": "cus_nobody"}, "resource_missing", "customer"),
        ({"payment_method": "pm_nobody"}, "resource_missing", "payment_method"),
        ({"customer": None}, None, "payment_method"),
        ({"off_session": True}, "payment_intent_invalid_parameter", "off_session"),
        ({"surprise": 1}, "parameter_unknown", "surprise"),
        ({"idempotency_key": "in the body"}, "parameter_unknown", "idempotency_key"),
        ({"statement_descriptor": "SHOP"}, None, "statement_descriptor"),
        ({"metadata": {"k" * 41: "v"}}, None, f"metadata[{'k' * 41}]"),
        ({"metadata": {"k": "v" * 501}}, None, "metadata[k]"),
        ({"metadata": {f"k{number}": "v" for number in range(51)}}, None, "metadata"),
    ],
)
async def test_refused_parameters(
    sim: RunningSim, client: stripe.StripeClient, params: dict[str, Any], code: str | None, param: str
) -> None:
    """A request that cannot be right is a 400 that names the parameter, and makes nothing."""
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await create(client, **params)
    assert caught.value.http_status == 400
    assert (caught.value.code, caught.value.param) == (code, param)
    assert sim.summary()["payment_intents"] == 0


async def test_metadata_at_its_limits(client: stripe.StripeClient) -> None:
    """Fifty keys of forty characters with values of five hundred are accepted and come back."""
    metadata = {f"{number:040}": "v" * 500 for number in range(50)}
    assert (await create(client, metadata=metadata)).metadata.to_dict() == metadata


async def test_unknown_objects_are_404(client: stripe.StripeClient) -> None:
    """An id in the path that is not there is a 404 resource_missing."""
    for attempt in (
        client.v1.payment_intents.retrieve_async("pi_nobody"),
        client.v1.customers.retrieve_async("cus_nobody"),
        client.v1.payment_methods.retrieve_async("pm_nobody"),
        client.v1.charges.retrieve_async("ch_nobody"),
    ):
        with pytest.raises(stripe.InvalidRequestError) as caught:
            await attempt
        assert (caught.value.http_status, caught.value.code) == (404, "resource_missing")


def test_behaviour_follows_the_longest_documented_id() -> None:
    """A suffix does not change what a payment method does."""
    assert find_documented_id("pm_card_visa_000123") == "pm_card_visa"
    assert find_documented_id("pm_card_visa_chargeDeclined_a_b") == "pm_card_visa_chargeDeclined"
    assert find_documented_id("pm_1Nx") is None
