"""The requests that most tests send, through the SDK."""

from typing import Any

import stripe


async def create(
    client: stripe.StripeClient, key: str | None = None, *, account: str | None = None, **params: Any
) -> stripe.PaymentIntent:
    """Create a PaymentIntent over 20 dollars for cus_1, unless told otherwise."""
    options: Any = {}
    if key is not None:
        options["idempotency_key"] = key
    if account is not None:
        options["stripe_account"] = account
    body: Any = {
        "amount": 2_000,
        "currency": "usd",
        "customer": "cus_1",
        "payment_method": "pm_card_visa_1",
        **params,
    }
    body = {name: value for name, value in body.items() if value is not None}
    return await client.v1.payment_intents.create_async(body, options)


async def confirm(
    client: stripe.StripeClient, intent_id: str, key: str | None = None, **params: Any
) -> stripe.PaymentIntent:
    """Confirm a PaymentIntent off session."""
    options: Any = {} if key is None else {"idempotency_key": key}
    body: Any = {"off_session": True, **params}
    return await client.v1.payment_intents.confirm_async(intent_id, body, options)


def headers_of(answer: stripe.StripeObject) -> dict[str, str]:
    """Return the headers that an object came with, names in lower case."""
    response = answer.last_response
    assert response is not None
    return {name.lower(): value for name, value in dict(response.headers).items()}


def error_of(error: stripe.StripeError) -> dict[str, Any]:
    """Return the error object as it was on the wire."""
    body: Any = error.json_body
    found: dict[str, Any] = body["error"]
    return found
