"""Unsafe on purpose: the key is right, and an answer is taken for what it is not."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import stripe

from tests.failure_modes.shop import Due, Shop

PATIENCE_SECONDS = 0.5
SLOWNESS_SECONDS = 1.5


@asynccontextmanager
async def open_client(shop: Shop) -> AsyncIterator[stripe.StripeClient]:
    """Open the SDK for use in this event loop."""
    transport = stripe.AIOHTTPClient()
    try:
        yield shop.client(transport)
    finally:
        await transport.close_async()  # type: ignore[no-untyped-call]  # as the SDK ships it


async def charge(client: stripe.StripeClient, due: Due, key: str) -> None:
    """Charge an amount, for as long as one has patience."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        await client.v1.payment_intents.create_async(due.params, {"idempotency_key": key})


async def new_key_after_409(shop: Shop) -> None:
    """409 says that the first request is still running; "a fresh key after any 4xx" runs a second one."""
    shop.sim.set_faults(shop.fault("delay", seconds=SLOWNESS_SECONDS))
    due = shop.owe()
    key = f"charge-{due.invoice}"
    async with open_client(shop) as client:
        while not shop.paid:
            try:
                await charge(client, due, key)
            except TimeoutError:
                continue
            except stripe.StripeError as error:
                if 400 <= (error.http_status or 0) < 500:
                    key = str(uuid.uuid4())
                continue
            shop.paid.append(due.invoice)


async def new_key_after_429(shop: Shop) -> None:
    """429 says that this request did not run, and nothing about the one before it, which did."""
    shop.sim.set_faults(shop.fault("drop", place="after"), shop.fault("error", only=2, status=429))
    due = shop.owe()
    key = f"charge-{due.invoice}"
    async with open_client(shop) as client:
        while not shop.paid:
            try:
                await client.v1.payment_intents.create_async(due.params, {"idempotency_key": key})
            except stripe.APIConnectionError:
                continue
            except stripe.RateLimitError:
                key = str(uuid.uuid4())
                continue
            shop.paid.append(due.invoice)


async def conflict_as_failure(shop: Shop) -> None:
    """409 is taken for a decline: the order is given up while its payment goes through."""
    shop.sim.set_faults(shop.fault("delay", seconds=SLOWNESS_SECONDS))
    due = shop.owe()
    async with open_client(shop) as client:
        while not shop.paid:
            try:
                await charge(client, due, f"charge-{due.invoice}")
            except TimeoutError:
                continue
            except stripe.StripeError:
                break
            shop.paid.append(due.invoice)


async def new_key_after_a_stored_500(shop: Shop) -> None:
    """The same key brings the same 500 again and again, so another key is tried; the first had paid."""
    shop.sim.set_faults(shop.fault("error", place="after", status=500, stored=True))
    due = shop.owe()
    key = f"charge-{due.invoice}"
    async with open_client(shop) as client:
        for attempt in range(1, 5):
            try:
                await client.v1.payment_intents.create_async(due.params, {"idempotency_key": key})
            except stripe.APIError:
                if attempt == 3:
                    key = str(uuid.uuid4())
                continue
            shop.paid.append(due.invoice)
            break


async def give_up_on_a_stored_500(shop: Shop) -> None:
    """A 500 that stays after three attempts is written down as "not paid"; it was."""
    shop.sim.set_faults(shop.fault("error", place="after", status=500, stored=True))
    due = shop.owe()
    async with open_client(shop) as client:
        for _ in range(3):
            try:
                await client.v1.payment_intents.create_async(
                    due.params, {"idempotency_key": f"charge-{due.invoice}"}
                )
            except stripe.APIError:
                continue
            shop.paid.append(due.invoice)
            break


async def change_the_amount_under_the_key(shop: Shop) -> None:
    """The order is corrected before its retry: 400, "refused, not paid", and the old amount was taken."""
    shop.lose_the_first_answer()
    due = shop.owe()
    async with open_client(shop) as client:
        for attempt in (due, replace(due, amount=due.amount + 800)):
            try:
                await client.v1.payment_intents.create_async(
                    attempt.params, {"idempotency_key": f"charge-{due.invoice}"}
                )
            except stripe.APIConnectionError:
                continue
            except stripe.StripeError:
                break
            shop.paid.append(due.invoice)
            break


async def in_flight_as_absent(shop: Shop) -> None:
    """Two workers look, see no payment and charge: between absent and complete is a third state."""
    due = shop.owe()
    async with open_client(shop) as client:

        async def work() -> None:
            if due.invoice in shop.paid:
                return
            await client.v1.payment_intents.create_async(due.params, {"idempotency_key": str(uuid.uuid4())})
            shop.paid.append(due.invoice)

        await asyncio.gather(work(), work())
