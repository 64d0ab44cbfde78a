"""The requests that most facts are asked with."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import stripe

AnswerT = TypeVar("AnswerT")
WAIT_SECONDS = 30.0
PAUSE_SECONDS = 0.5


def new_key() -> str:
    """Return an idempotency key that nobody has used."""
    return f"conformance_{uuid.uuid4()}"


def order(**params: Any) -> Any:
    """Return the parameters of a payment over 20 dollars that needs no browser."""
    body = {
        "amount": 2_000,
        "currency": "usd",
        "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
        **params,
    }
    return {name: value for name, value in body.items() if value is not None}


async def pay(
    client: stripe.StripeClient, method: str = "pm_card_visa", **params: Any
) -> stripe.PaymentIntent:
    """Create and confirm a payment."""
    return await client.v1.payment_intents.create_async(order(payment_method=method, confirm=True, **params))


async def attach(client: stripe.StripeClient, customer: str, method: str = "pm_card_visa") -> str:
    """Attach a test payment method to a customer and return its id."""
    return (await client.v1.payment_methods.attach_async(method, {"customer": customer})).id


async def eventually(ask: Callable[[], Awaitable[AnswerT]], until: Callable[[AnswerT], bool]) -> AnswerT:
    """Return the first answer that will do; real lists of events can be a moment late."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        answer = await ask()
        if until(answer) or time.monotonic() > deadline:
            return answer
        await asyncio.sleep(PAUSE_SECONDS)


def replayed(answer: stripe.StripeObject) -> bool:
    """Whether an answer came from the idempotency layer."""
    assert answer.last_response is not None
    headers = {name.lower(): value for name, value in dict(answer.last_response.headers).items()}
    return headers.get("idempotent-replayed") == "true"


def error_of(error: stripe.StripeError) -> dict[str, Any]:
    """Return the error object as it was on the wire."""
    body: Any = error.json_body
    found: dict[str, Any] = body["error"]
    return found
