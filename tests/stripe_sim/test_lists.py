"""Lists: newest first, cursors, windows, customers and their payment methods."""

from typing import Any

import pytest
import stripe

from deploy.stripe_sim.testing import RunningSim
from tests.stripe_sim.calls import create


async def _create_series(sim: RunningSim, client: stripe.StripeClient, count: int) -> list[str]:
    ids = []
    for _ in range(count):
        sim.clock.advance(10)
        ids.append((await create(client)).id)
    return ids


async def test_newest_first_with_default_page(sim: RunningSim, client: stripe.StripeClient) -> None:
    """A list without parameters has the ten newest and says that there is more."""
    ids = await _create_series(sim, client, 12)
    page = await client.v1.payment_intents.list_async()
    assert [intent.id for intent in page.data] == ids[:1:-1]
    assert page.has_more
    assert page.url == "/v1/payment_intents"


async def test_paging_both_ways(sim: RunningSim, client: stripe.StripeClient) -> None:
    """starting_after goes on to older ones, ending_before back to the nearest newer ones."""
    ids = await _create_series(sim, client, 7)
    intents = client.v1.payment_intents
    older = await intents.list_async({"limit": 3, "starting_after": ids[5]})
    assert [intent.id for intent in older.data] == [ids[4], ids[3], ids[2]]
    assert older.has_more
    last = await intents.list_async({"limit": 3, "starting_after": ids[2]})
    assert [intent.id for intent in last.data] == [ids[1], ids[0]]
    assert not last.has_more
    newer = await intents.list_async({"limit": 3, "ending_before": ids[1]})
    assert [intent.id for intent in newer.data] == [ids[4], ids[3], ids[2]]
    assert newer.has_more
    every = [intent.id async for intent in (await intents.list_async({"limit": 2})).auto_paging_iter()]
    assert every == ids[::-1]


async def test_filters(sim: RunningSim, client: stripe.StripeClient) -> None:
    """The customer and the created window narrow a list, inclusive or not, also once the clock went back."""
    started_at = int(sim.clock.now())
    ids = await _create_series(sim, client, 4)
    sim.seed("cus_2")
    other = await create(client, customer="cus_2", payment_method=None)
    intents = client.v1.payment_intents
    assert [intent.id for intent in (await intents.list_async({"customer": "cus_2"})).data] == [other.id]
    assert (await intents.list_async({"customer": "cus_3"})).data == []

    async def find(**created: int) -> list[str]:
        params: Any = {"customer": "cus_1", "created": created}
        page = await intents.list_async(params)
        return [intent.id for intent in page.data]

    for _ in range(2):
        assert await find(gte=started_at + 20, lt=started_at + 40) == [ids[2], ids[1]]
        assert await find(gt=started_at + 20, lte=started_at + 40) == [ids[3], ids[2]]
        sim.clock.freeze(started_at - 1_000)
        await create(client)


@pytest.mark.parametrize(
    "params", [{"limit": 0}, {"limit": 101}, {"starting_after": "pi_x"}, {"status": "succeeded"}]
)
async def test_wrong_list_parameters(client: stripe.StripeClient, params: dict[str, object]) -> None:
    """Limits beyond 1 to 100, cursors that do not exist and filters that Stripe does not have are refused."""
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await client.v1.payment_intents.list_async(params)  # type: ignore[arg-type]
    assert caught.value.http_status == 400


async def test_customers(client: stripe.StripeClient) -> None:
    """Customers are created, changed key by key, listed, and get a default payment method that is theirs."""
    customers = client.v1.customers
    one = await customers.create_async({"name": "One", "metadata": {"a": "1", "b": "2"}})
    method = await client.v1.payment_methods.attach_async("pm_card_visa", {"customer": one.id})
    assert method.customer == one.id
    changed = await customers.update_async(
        one.id, {"metadata": {"a": ""}, "invoice_settings": {"default_payment_method": method.id}}
    )
    assert changed.metadata is not None
    assert changed.metadata.to_dict() == {"b": "2"}
    assert changed.name == "One"
    assert changed.invoice_settings is not None
    assert changed.invoice_settings.default_payment_method == method.id
    with pytest.raises(stripe.InvalidRequestError):
        await customers.update_async(
            one.id, {"invoice_settings": {"default_payment_method": "pm_card_visa_1"}}
        )
    assert [customer.id for customer in (await customers.list_async()).data] == [one.id, "cus_1"]


async def test_payment_methods_of_a_customer(sim: RunningSim, client: stripe.StripeClient) -> None:
    """Both lists show what is attached; a card that only declines cannot be attached, nor a foreign one."""
    sim.seed("cus_1", "pm_card_visa_1", "pm_card_visa_2")
    by_path = await client.v1.customers.payment_methods.list_async("cus_1")
    by_query = await client.v1.payment_methods.list_async({"customer": "cus_1", "type": "card"})
    assert [method.id for method in by_path.data] == ["pm_card_visa_2", "pm_card_visa_1"]
    assert [method.id for method in by_query.data] == ["pm_card_visa_2", "pm_card_visa_1"]
    with pytest.raises(stripe.CardError):
        await client.v1.payment_methods.attach_async("pm_card_visa_chargeDeclined", {"customer": "cus_1"})
    sim.seed("cus_2")
    with pytest.raises(stripe.InvalidRequestError):
        await client.v1.payment_methods.attach_async("pm_card_visa_1", {"customer": "cus_2"})


async def test_expand(client: stripe.StripeClient) -> None:
    """An expand puts the object where its id was, in lists too, and refuses what cannot be expanded."""
    paid = await create(client, confirm=True, expand=["latest_charge", "customer"])
    assert isinstance(paid.latest_charge, stripe.Charge)
    assert isinstance(paid.customer, stripe.Customer)
    page = await client.v1.payment_intents.list_async({"expand": ["data.latest_charge"]})
    assert isinstance(page.data[0].latest_charge, stripe.Charge)
    with pytest.raises(stripe.InvalidRequestError, match="cannot be expanded"):
        await client.v1.payment_intents.retrieve_async(paid.id, {"expand": ["amount"]})
