"""Customers, payment methods and PaymentIntents as they change."""

from typing import Any

import aiohttp
import pytest
import stripe

from deploy.stripe_sim.behaviours import BEHAVIOURS
from deploy.stripe_sim.testing import RunningSim
from tests.stripe_sim.calls import confirm, create


async def test_a_deleted_customer_is_a_stub(sim: RunningSim, client: stripe.StripeClient) -> None:
    """Deleting leaves `{id, object, deleted}`, empties no payment, and detaches the cards."""
    paid = await create(client, confirm=True)
    gone = await client.v1.customers.delete_async("cus_1")
    assert gone.to_dict() == {"id": "cus_1", "object": "customer", "deleted": True}
    assert (await client.v1.customers.retrieve_async("cus_1")).to_dict() == gone.to_dict()
    assert (await client.v1.customers.list_async()).data == []
    assert (await client.v1.payment_intents.retrieve_async(paid.id)).customer == "cus_1"
    assert (await client.v1.payment_methods.retrieve_async("pm_card_visa_1")).customer is None
    for attempt in (
        create(client, payment_method=None),
        client.v1.customers.update_async("cus_1", {"name": "One"}),
        client.v1.payment_methods.attach_async("pm_card_visa", {"customer": "cus_1"}),
    ):
        with pytest.raises(stripe.InvalidRequestError) as caught:
            await attempt
        assert caught.value.code == "resource_missing"


async def test_a_detached_card_is_spent(client: stripe.StripeClient) -> None:
    """A detached payment method leaves the customer's list and default, and cannot be used again."""
    default: Any = {"invoice_settings": {"default_payment_method": "pm_card_visa_1"}}
    await client.v1.customers.update_async("cus_1", default)
    assert (await client.v1.payment_methods.detach_async("pm_card_visa_1")).customer is None
    assert (await client.v1.customers.payment_methods.list_async("cus_1")).data == []
    customer = await client.v1.customers.retrieve_async("cus_1")
    assert customer.invoice_settings is not None
    assert customer.invoice_settings.default_payment_method is None
    for attempt in (
        client.v1.payment_methods.attach_async("pm_card_visa_1", {"customer": "cus_1"}),
        client.v1.payment_methods.detach_async("pm_card_visa_1"),
        create(client),
    ):
        with pytest.raises(stripe.InvalidRequestError):
            await attempt


@pytest.mark.parametrize(
    ("params", "last4"),
    [
        ({"type": "card", "card": {"token": "tok_visa"}}, "4242"),
        ({"type": "card", "card": {"token": "tok_mastercard"}}, "4444"),
        ({"type": "card", "card": {"token": "tok_chargeCustomerFail"}}, "0341"),
        (
            {
                "type": "us_bank_account",
                "us_bank_account": {"account_number": "000222222227", "routing_number": "110000000"},
            },
            "6789",
        ),
        ({"type": "sepa_debit", "sepa_debit": {"iban": "DE62 3704 0044 0532 0130 01"}}, "3201"),
    ],
)
async def test_payment_methods_from_test_numbers(
    client: stripe.StripeClient, params: Any, last4: str
) -> None:
    """Test tokens and test account numbers make payment methods that behave as documented."""
    method = await client.v1.payment_methods.create_async(params)
    assert method.to_dict()[method.type]["last4"] == last4
    attached = await client.v1.payment_methods.attach_async(method.id, {"customer": "cus_1"})
    assert attached.customer == "cus_1"


@pytest.mark.parametrize(
    "params",
    [
        {"type": "card", "card": {"number": "4242424242424242", "exp_month": 1, "exp_year": 2040}},
        {"type": "card", "card": {"token": "tok_nobody"}},
        {"type": "card"},
        {"type": "klarna"},
        {"type": "sepa_debit", "sepa_debit": {"iban": "DE00"}},
        {
            "type": "us_bank_account",
            "us_bank_account": {"account_number": "1", "routing_number": "110000000"},
        },
    ],
)
async def test_payment_methods_that_cannot_be(client: stripe.StripeClient, params: Any) -> None:
    """Raw card numbers, unknown tokens and numbers that are no test numbers are refused."""
    with pytest.raises(stripe.InvalidRequestError):
        await client.v1.payment_methods.create_async(params)


@pytest.mark.parametrize("method_id", sorted(BEHAVIOURS))
async def test_every_documented_test_id_can_be_paid_with(client: stripe.StripeClient, method_id: str) -> None:
    """Each test id ends a confirm as its behaviour says, and never in an error of the simulator."""
    behaviour = BEHAVIOURS[method_id]
    params: Any = {"customer": None, "payment_method": method_id, "confirm": True, "off_session": True}
    is_asked = behaviour.authentication == "always"
    if is_asked or behaviour.outcome == "decline" or behaviour.declines_first:
        with pytest.raises(stripe.CardError):
            await create(client, **params)
        return
    intent = await create(client, **params)
    assert intent.status == ("processing" if behaviour.outcome == "process" else "succeeded")


async def test_an_open_payment_can_be_changed(sim: RunningSim, client: stripe.StripeClient) -> None:
    """Amount, customer, card and words change until it is paid; after that only words do."""
    sim.seed("cus_2", "pm_card_visa_2")
    intent = await create(client, payment_method=None)
    changes: Any = {
        "amount": 3_000,
        "customer": "cus_2",
        "payment_method": "pm_card_visa_2",
        "metadata": {"a": "b"},
        "shipping": {"name": "One", "address": {"city": "Berlin", "line1": "Weg 1"}},
    }
    changed = await client.v1.payment_intents.update_async(intent.id, changes)
    assert (changed.amount, changed.customer, changed.status) == (3_000, "cus_2", "requires_confirmation")
    assert [
        found.id for found in (await client.v1.payment_intents.list_async({"customer": "cus_2"})).data
    ] == [intent.id]
    assert (await client.v1.payment_intents.list_async({"customer": "cus_1"})).data == []
    assert (await confirm(client, intent.id)).status == "succeeded"
    assert sim.movements[0].amount == 3_000
    words = await client.v1.payment_intents.update_async(intent.id, {"description": "paid"})
    assert words.description == "paid"
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await client.v1.payment_intents.update_async(intent.id, {"amount": 1_000})
    assert caught.value.code == "payment_intent_unexpected_state"


@pytest.mark.parametrize(("succeeds", "status"), [(True, "succeeded"), (False, "requires_payment_method")])
async def test_a_cardholder_authenticates(
    sim: RunningSim, client: stripe.StripeClient, *, succeeds: bool, status: str
) -> None:
    """What a bank asks its customer for can be granted or denied through the controls."""
    asked = await create(client, confirm=True, customer=None, payment_method="pm_card_authenticationRequired")
    assert asked.status == "requires_action"
    async with aiohttp.ClientSession() as session:
        document = {"payment_intent": asked.id, "succeeds": succeeds}
        async with session.post(f"{sim.url}/_sim/authenticate", json=document) as answer:
            assert (await answer.json())["status"] == status
        async with session.post(f"{sim.url}/_sim/authenticate", json=document) as answer:
            assert answer.status == 400
    found = await client.v1.payment_intents.retrieve_async(asked.id)
    assert found.status == status
    assert len(sim.movements) == succeeds


async def test_expand_four_levels(client: stripe.StripeClient) -> None:
    """Expansions nest, also in lists, and each level is an object of its own."""
    paid = await create(client, confirm=True)
    await client.v1.refunds.create_async({"payment_intent": paid.id, "amount": 500})
    page = await client.v1.refunds.list_async({"expand": ["data.charge.payment_intent.customer"]})
    charge = page.data[0].charge
    assert isinstance(charge, stripe.Charge)
    assert isinstance(charge.payment_intent, stripe.PaymentIntent)
    assert isinstance(charge.payment_intent.customer, stripe.Customer)
    intent = await client.v1.payment_intents.retrieve_async(paid.id, {"expand": ["latest_charge.refunds"]})
    assert isinstance(intent.latest_charge, stripe.Charge)
    assert intent.latest_charge.refunds is not None
    assert [refund.amount for refund in intent.latest_charge.refunds.data] == [500]
    assert isinstance((await client.v1.payment_intents.retrieve_async(paid.id)).latest_charge, str)
