"""Captures, refunds, disputes, and the balance that they leave."""

from typing import Any

import pytest
import stripe

from deploy.stripe_sim.fees import DISPUTE_FEE, charge_fee
from deploy.stripe_sim.testing import RunningSim
from tests.stripe_sim.calls import create, error_of

DAY_SECONDS = 86_400


async def pay(
    client: stripe.StripeClient, method: str = "pm_card_visa", **params: Any
) -> stripe.PaymentIntent:
    """Pay 20 dollars with a test payment method of nobody's."""
    return await create(client, confirm=True, customer=None, payment_method=method, **params)


async def balance_of(client: stripe.StripeClient, source: str) -> list[tuple[str, int, int, int]]:
    """Return type, amount, fee and net of each movement of a source, oldest first."""
    page = await client.v1.balance_transactions.list_async({"source": source, "limit": 100})
    return [(entry.type, entry.amount, entry.fee, entry.net) for entry in page.data][::-1]


async def test_capture_takes_what_was_authorized(sim: RunningSim, client: stripe.StripeClient) -> None:
    """A manual capture moves money only when captured, and a part releases the rest for good."""
    held = await pay(client, capture_method="manual")
    assert (held.status, held.amount_capturable, held.amount_received) == ("requires_capture", 2_000, 0)
    assert sim.movements == []
    paid = await client.v1.payment_intents.capture_async(held.id, {"amount_to_capture": 1_500})
    assert (paid.status, paid.amount_capturable, paid.amount_received) == ("succeeded", 0, 1_500)
    assert [entry.amount for entry in sim.movements] == [1_500]
    charge = await client.v1.charges.retrieve_async(str(paid.latest_charge))
    assert (charge.amount, charge.amount_captured, charge.amount_refunded) == (2_000, 1_500, 500)
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await client.v1.payment_intents.capture_async(held.id)
    assert caught.value.code == "payment_intent_unexpected_state"


@pytest.mark.parametrize("amount", [0, 2_001])
async def test_capture_no_more_than_authorized(client: stripe.StripeClient, amount: int) -> None:
    """More than was authorized, or nothing, cannot be captured."""
    held = await pay(client, capture_method="manual")
    with pytest.raises(stripe.InvalidRequestError):
        await client.v1.payment_intents.capture_async(held.id, {"amount_to_capture": amount})


async def test_an_authorization_lapses_after_seven_days(sim: RunningSim, client: stripe.StripeClient) -> None:
    """What nobody captures is canceled by itself, without money moved."""
    held = await pay(client, capture_method="manual")
    sim.clock.advance(7 * DAY_SECONDS)
    found = await client.v1.payment_intents.retrieve_async(held.id)
    assert (found.status, found.cancellation_reason) == ("canceled", "automatic")
    assert sim.movements == []


async def test_refunds_add_up_to_the_charge(client: stripe.StripeClient) -> None:
    """Partial refunds go until nothing is left; more than is left is refused, and one after the last, too."""
    paid = await pay(client)
    refunds = client.v1.refunds
    first = await refunds.create_async(
        {"payment_intent": paid.id, "amount": 500, "metadata": {"why": "late"}}
    )
    assert (first.status, first.amount, first.charge) == ("succeeded", 500, paid.latest_charge)
    charge = await client.v1.charges.retrieve_async(str(paid.latest_charge))
    assert (charge.refunded, charge.amount_refunded) == (False, 500)
    assert charge.metadata.to_dict() == {}
    with pytest.raises(stripe.InvalidRequestError, match="greater than unrefunded amount") as caught:
        await refunds.create_async({"payment_intent": paid.id, "amount": 1_501})
    assert caught.value.http_status == 400
    rest = await refunds.create_async({"charge": str(paid.latest_charge)})
    assert rest.amount == 1_500
    assert (await client.v1.charges.retrieve_async(str(paid.latest_charge))).refunded
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await refunds.create_async({"payment_intent": paid.id})
    assert caught.value.code == "charge_already_refunded"
    listed = await refunds.list_async({"payment_intent": paid.id})
    assert [refund.id for refund in listed.data] == [rest.id, first.id]
    assert await balance_of(client, first.id) == [("refund", -500, 0, -500)]


async def test_a_refund_fails_later(sim: RunningSim, client: stripe.StripeClient) -> None:
    """A refund can fail by the clock: the money is back on the balance, and can be refunded again."""
    paid = await pay(client, "pm_card_refundFail")
    refund = await client.v1.refunds.create_async({"payment_intent": paid.id})
    assert refund.status == "succeeded"
    sim.clock.advance(DAY_SECONDS)
    found = await client.v1.refunds.retrieve_async(refund.id)
    assert (found.status, found.failure_reason) == ("failed", "expired_or_canceled_card")
    assert await balance_of(client, refund.id) == [
        ("refund", -2_000, 0, -2_000),
        ("refund_failure", 2_000, 0, 2_000),
    ]
    charge = await client.v1.charges.retrieve_async(str(paid.latest_charge))
    assert (charge.amount_refunded, charge.refunded) == (0, False)
    assert [event.type for event in (await client.v1.events.list_async({"type": "refund.failed"})).data] == [
        "refund.failed"
    ]


async def test_a_refund_pends_first(sim: RunningSim, client: stripe.StripeClient) -> None:
    """A pending refund succeeds by the clock."""
    paid = await pay(client, "pm_card_pendingRefund")
    refund = await client.v1.refunds.create_async({"payment_intent": paid.id})
    assert (refund.status, refund.pending_reason) == ("pending", "processing")
    sim.clock.advance(DAY_SECONDS)
    assert (await client.v1.refunds.retrieve_async(refund.id)).status == "succeeded"


@pytest.mark.parametrize(
    "params", [{}, {"charge": "ch_1", "payment_intent": "pi_1"}, {"charge": "ch_nobody"}]
)
async def test_refunds_need_one_payment(client: stripe.StripeClient, params: dict[str, str]) -> None:
    """A refund names a charge or a PaymentIntent that is there, not both."""
    with pytest.raises(stripe.InvalidRequestError):
        await client.v1.refunds.create_async(params)  # type: ignore[arg-type]  # wrong on purpose


async def test_what_was_not_paid_cannot_be_refunded(client: stripe.StripeClient) -> None:
    """An unpaid PaymentIntent has nothing to give back."""
    intent = await create(client)
    with pytest.raises(stripe.InvalidRequestError, match="successful charge"):
        await client.v1.refunds.create_async({"payment_intent": intent.id})


async def test_a_dispute_takes_the_money_and_a_fee(client: stripe.StripeClient) -> None:
    """A disputed charge cannot be refunded; amount and fee leave the balance; a win returns the amount."""
    paid = await pay(client, "pm_card_createDispute")
    (dispute,) = (await client.v1.disputes.list_async({"payment_intent": paid.id})).data
    assert (dispute.status, dispute.reason, dispute.amount) == ("needs_response", "fraudulent", 2_000)
    charge = await client.v1.charges.retrieve_async(str(paid.latest_charge))
    assert charge.disputed
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await client.v1.refunds.create_async({"payment_intent": paid.id})
    assert caught.value.code == "charge_disputed"
    won = await client.v1.disputes.update_async(
        dispute.id, {"evidence": {"uncategorized_text": "winning_evidence"}}
    )
    assert won.status == "won"
    assert await balance_of(client, dispute.id) == [
        ("adjustment", -2_000, DISPUTE_FEE, -2_000 - DISPUTE_FEE),
        ("adjustment", 2_000, 0, 2_000),
    ]


async def test_an_unanswered_dispute_is_lost(sim: RunningSim, client: stripe.StripeClient) -> None:
    """Nobody answers in time: lost, by the clock; an inquiry just closes and never took money."""
    for method, status in (
        ("pm_card_createDispute", "lost"),
        ("pm_card_createDisputeInquiry", "warning_closed"),
    ):
        paid = await pay(client, method)
        (dispute,) = (await client.v1.disputes.list_async({"payment_intent": paid.id})).data
        sim.clock.advance(10 * DAY_SECONDS)
        assert (await client.v1.disputes.retrieve_async(dispute.id)).status == status
        taken = [entry[0] for entry in await balance_of(client, dispute.id)]
        assert taken == (["adjustment"] if status == "lost" else [])


@pytest.mark.parametrize(
    ("kind", "amount", "fee"),
    [
        ("card", 2_000, 88),
        ("us_bank_account", 2_000, 16),
        ("us_bank_account", 10_000_000, 500),
        ("sepa_debit", 2_000, 35),
        ("card", 1, 1),
    ],
)
def test_fees(kind: str, amount: int, fee: int) -> None:
    """Fees follow a price list, and never exceed the amount."""
    assert charge_fee(kind, amount) == fee


async def test_the_balance_is_what_its_transactions_add_up_to(
    sim: RunningSim, client: stripe.StripeClient
) -> None:
    """Every movement has its transaction, pending for two days; the balance is their sum."""
    paid = await pay(client, expand=["latest_charge.balance_transaction"])
    assert isinstance(paid.latest_charge, stripe.Charge)
    transaction = paid.latest_charge.balance_transaction
    assert isinstance(transaction, stripe.BalanceTransaction)
    assert (transaction.amount, transaction.fee, transaction.net) == (2_000, 88, 1_912)
    assert (transaction.status, transaction.available_on) == (
        "pending",
        transaction.created + 2 * DAY_SECONDS,
    )
    assert transaction.source == paid.latest_charge.id
    balance = await client.v1.balance.retrieve_async()
    assert (balance.pending[0].amount, balance.available[0].amount) == (1_912, 0)
    sim.clock.advance(2 * DAY_SECONDS)
    balance = await client.v1.balance.retrieve_async()
    assert (balance.pending[0].amount, balance.available[0].amount) == (0, 1_912)


async def test_errors_carry_what_a_client_needs(client: stripe.StripeClient) -> None:
    """A decline names code, advice and where it is explained, with the payment method that failed."""
    with pytest.raises(stripe.CardError) as caught:
        await pay(client, "pm_card_visa_chargeDeclinedInsufficientFunds")
    error = error_of(caught.value)
    assert error["advice_code"] == "try_again_later"
    assert error["doc_url"].endswith("/card-declined")
    assert error["payment_method"]["type"] == "card"
    assert error["payment_intent"]["last_payment_error"]["decline_code"] == "insufficient_funds"
