"""What both servers show: lists, events, search, stubs, shapes."""

from typing import Any

import pytest
import stripe

from tests.stripe_sim.conformance.requests import attach, error_of, eventually, new_key, order, pay
from tests.stripe_sim.shape_check import check_answer


async def test_lists_of_a_customer(client: stripe.StripeClient, customer: str) -> None:
    """Newest first, by customer and window of creation, page by page."""
    ids = [(await client.v1.payment_intents.create_async(order(customer=customer))).id for _ in range(3)]
    intents = client.v1.payment_intents
    first = await intents.list_async({"customer": customer, "limit": 2})
    assert ([intent.id for intent in first.data], first.has_more) == (ids[:0:-1], True)
    rest = await intents.list_async({"customer": customer, "limit": 2, "starting_after": ids[1]})
    assert ([intent.id for intent in rest.data], rest.has_more) == (ids[:1], False)
    since = first.data[0].created
    later: Any = {"customer": customer, "created": {"gt": since + 1_000}}
    assert (await intents.list_async(later)).data == []


async def test_filters_that_do_not_exist(client: stripe.StripeClient) -> None:
    """PaymentIntents cannot be listed by status, metadata or key."""
    for name in ("status", "idempotency_key"):
        wrong: Any = {name: "x"}
        with pytest.raises(stripe.InvalidRequestError) as caught:
            await client.v1.payment_intents.list_async(wrong)
        assert caught.value.code == "parameter_unknown"


async def test_events_show_the_key(client: stripe.StripeClient) -> None:
    """An event names the request that caused it, and the key that it was sent with."""
    key = new_key()
    intent = await client.v1.payment_intents.create_async(order(), {"idempotency_key": key})

    async def ask() -> list[stripe.Event]:
        page = await client.v1.events.list_async({"type": "payment_intent.created", "limit": 20})
        return [event for event in page.data if event.data.object["id"] == intent.id]

    (event,) = await eventually(ask, bool)
    assert event.request is not None
    assert event.request.idempotency_key == key
    assert intent.last_response is not None
    assert event.request.id == intent.last_response.request_id


async def test_a_payment_makes_these_events(client: stripe.StripeClient) -> None:
    """Create, charge, success: three events for one payment in one request."""
    paid = await pay(client)

    async def ask() -> set[str]:
        page = await client.v1.events.list_async({"limit": 20})
        mine = {paid.id, paid.latest_charge}
        return {event.type for event in page.data if event.data.object["id"] in mine}

    wanted = {"payment_intent.created", "charge.succeeded", "payment_intent.succeeded"}
    assert wanted <= await eventually(ask, lambda types: wanted <= types)


@pytest.mark.parametrize("query", ["order", "status:'a' AND currency:'b' OR amount>1", "unheard:'x'"])
async def test_search_refuses(client: stripe.StripeClient, query: str) -> None:
    """Queries without a field, with AND and OR mixed, or over unknown fields are a 400."""
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await client.v1.payment_intents.search_async({"query": query})
    assert caught.value.http_status == 400


async def test_a_deleted_customer_is_a_stub(client: stripe.StripeClient, customer: str) -> None:
    """Deleting detaches the cards and leaves a stub, which cannot be paid for."""
    method = await attach(client, customer)
    gone = await client.v1.customers.delete_async(customer)
    assert gone.to_dict() == {"id": customer, "object": "customer", "deleted": True}
    assert (await client.v1.customers.retrieve_async(customer)).to_dict() == gone.to_dict()
    assert (await client.v1.payment_methods.retrieve_async(method)).customer is None
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await client.v1.payment_intents.create_async(order(customer=customer))
    assert error_of(caught.value)["code"] == "resource_missing"


async def test_a_detached_card_is_spent(client: stripe.StripeClient, customer: str) -> None:
    """A detached payment method cannot be attached again."""
    method = await attach(client, customer)
    await client.v1.payment_methods.detach_async(method)
    with pytest.raises(stripe.InvalidRequestError):
        await client.v1.payment_methods.attach_async(method, {"customer": customer})


async def test_what_is_not_there(client: stripe.StripeClient) -> None:
    """An unknown id is a 404 `resource_missing`."""
    for attempt in (
        client.v1.payment_intents.retrieve_async("pi_nobody"),
        client.v1.charges.retrieve_async("ch_nobody"),
        client.v1.customers.retrieve_async("cus_nobody"),
    ):
        with pytest.raises(stripe.InvalidRequestError) as caught:
            await attempt
        assert (caught.value.http_status, caught.value.code) == (404, "resource_missing")


async def test_an_endpoint_shows_its_secret_once(client: stripe.StripeClient) -> None:
    """The secret is in the answer to the creation and nowhere else."""
    endpoints = client.v1.webhook_endpoints
    body: Any = {"url": "https://example.com/hook", "enabled_events": ["payment_intent.succeeded"]}
    made = await endpoints.create_async(body)
    try:
        assert made.secret is not None
        assert made.secret.startswith("whsec_")
        assert getattr(await endpoints.retrieve_async(made.id), "secret", None) is None
    finally:
        gone = await endpoints.delete_async(made.id)
    assert gone.to_dict() == {"id": made.id, "object": "webhook_endpoint", "deleted": True}


async def test_shapes(client: stripe.StripeClient) -> None:
    """A payment with its charge, transaction and refund has the fields that the SDK knows, at every level."""
    paid = await pay(client, expand=["latest_charge.balance_transaction", "payment_method"])
    refund = await client.v1.refunds.create_async({"payment_intent": paid.id, "amount": 500})
    for shown in (paid.to_dict(), refund.to_dict()):
        assert check_answer(shown, shown["object"]) == []
