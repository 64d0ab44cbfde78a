"""Unsafe on purpose: the key names something else than the amount that is due."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import stripe
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_none

from tests.failure_modes.shop import NOW, Shop


async def key_from_an_email_address(shop: Shop) -> None:
    """stripe: two amounts of one customer have one key, and the second gets the first one's answer."""
    client = shop.client()
    for number in (1, 2):
        due = shop.owe(number, customer=1)
        params: Any = {**due.params, "metadata": {"email": due.email}}
        options: stripe.RequestOptions = {"idempotency_key": f"charge-{due.email}"}
        intent = await asyncio.to_thread(client.v1.payment_intents.create, params, options)
        if intent.status == "succeeded":
            shop.paid.append(due.invoice)


async def key_from_the_time(shop: Shop) -> None:
    """stripe, tenacity: a timestamp makes the key unique, for each attempt."""
    shop.lose_the_first_answer()
    due = shop.owe()
    client = shop.client()

    @retry(
        retry=retry_if_exception_type(stripe.APIConnectionError), stop=stop_after_attempt(3), wait=wait_none()
    )
    def charge() -> stripe.PaymentIntent:
        key = f"{due.customer}-{time.time_ns()}"
        return client.v1.payment_intents.create(due.params, {"idempotency_key": key})

    await asyncio.to_thread(charge)
    shop.paid.append(due.invoice)


async def key_from_the_hour_of_the_batch(shop: Shop) -> None:
    """stripe: one timestamp for a batch is one key, and whoever comes second is refused."""
    client = shop.client()
    key = f"billing-{datetime.now(tz=UTC):%Y-%m-%dT%H}"
    for number in (1, 2):
        due = shop.owe(number)
        try:
            await asyncio.to_thread(client.v1.payment_intents.create, due.params, {"idempotency_key": key})
        except stripe.StripeError:
            continue  # logged, and the batch goes on
        shop.paid.append(due.invoice)


async def same_key_after_a_day(shop: Shop) -> None:
    """stripe: a right key that Stripe has forgotten when the job is looked at again, 25 hours later."""
    shop.sim.clock.freeze(NOW)
    shop.lose_the_first_answer()
    due = shop.owe()
    client = shop.client()

    def charge() -> stripe.PaymentIntent:
        return client.v1.payment_intents.create(due.params, {"idempotency_key": f"charge-{due.invoice}"})

    try:
        await asyncio.to_thread(charge)
    except stripe.APIConnectionError:
        shop.sim.clock.freeze(NOW + timedelta(hours=25).total_seconds())
        await asyncio.to_thread(charge)
    shop.paid.append(due.invoice)
