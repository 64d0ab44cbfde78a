"""Unsafe on purpose: the key is made by something that a retry runs again.

Stripe has booked the first request when its answer is lost, or when the client has stopped waiting for it.
"""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp
import stripe
from tenacity import Retrying, retry, retry_if_exception_type, stop_after_attempt, wait_none

from tests.failure_modes.shop import Due, Shop


@dataclass(frozen=True)
class ChargeRequest:
    """A request that cannot be changed once it is built, so a retry builds another."""

    form: dict[str, str]
    key: str = field(default_factory=lambda: str(uuid.uuid4()))


def build_request(due: Due) -> ChargeRequest:
    """Return the request for an amount that is due. Where it is called, no key is to be seen."""
    return ChargeRequest(due.form)


async def build_a_request_per_retry(shop: Shop) -> None:
    """aiohttp: the factory stands inside the loop."""
    shop.lose_the_first_answer()
    due = shop.owe()
    async with aiohttp.ClientSession(headers=shop.headers) as session:
        for attempt in range(1, 4):
            request = build_request(due)
            headers = {"Idempotency-Key": request.key}
            try:
                async with session.post(shop.charges_url, data=request.form, headers=headers) as answer:
                    answer.raise_for_status()
            except aiohttp.ServerDisconnectedError:
                if attempt == 3:
                    raise
                continue
            shop.paid.append(due.invoice)
            break


async def enter_again_on_error(shop: Shop) -> None:
    """aiohttp: the error handler calls the function that makes the key."""
    shop.lose_the_first_answer()
    shop.owe()
    async with aiohttp.ClientSession(headers=shop.headers) as session:

        async def charge(due: Due, attempts_left: int) -> None:
            headers = {"Idempotency-Key": str(uuid.uuid4())}
            try:
                async with session.post(shop.charges_url, data=due.form, headers=headers) as answer:
                    answer.raise_for_status()
            except aiohttp.ServerDisconnectedError:
                if not attempts_left:
                    raise
                await charge(due, attempts_left - 1)
            else:
                shop.paid.append(due.invoice)

        for due in shop.dues:
            await charge(due, attempts_left=2)


async def leave_the_key_to_the_sdk(shop: Shop) -> None:
    """stripe, tenacity: without a key the SDK makes one per call, and the decorator calls again."""
    shop.lose_the_first_answer()
    due = shop.owe()
    client = shop.client()

    @retry(
        retry=retry_if_exception_type(stripe.APIConnectionError), stop=stop_after_attempt(3), wait=wait_none()
    )
    def charge() -> stripe.PaymentIntent:
        return client.v1.payment_intents.create(due.params)

    await asyncio.to_thread(charge)
    shop.paid.append(due.invoice)


async def defer_the_construction(shop: Shop) -> None:
    """stripe, tenacity: a lambda keeps the call for later, and makes its key each time it is called."""
    shop.lose_the_first_answer()
    due = shop.owe()
    client = shop.client()

    def charge_later() -> Callable[[], stripe.PaymentIntent]:
        return lambda: client.v1.payment_intents.create(due.params, {"idempotency_key": str(uuid.uuid4())})

    connection_lost = retry_if_exception_type(stripe.APIConnectionError)
    retrying = Retrying(retry=connection_lost, stop=stop_after_attempt(3), wait=wait_none())
    await asyncio.to_thread(retrying, charge_later())
    shop.paid.append(due.invoice)


async def fall_back_after_a_timeout(shop: Shop) -> None:
    """stripe: whoever has waited long enough sends another request; Stripe goes on with the first."""
    shop.sim.set_faults(shop.fault("delay", place="after", seconds=2.0))
    due = shop.owe()
    transport = stripe.AIOHTTPClient()
    client = shop.client(transport)

    async def charge() -> stripe.PaymentIntent:
        key = str(uuid.uuid4())
        return await client.v1.payment_intents.create_async(due.params, {"idempotency_key": key})

    try:
        try:
            async with asyncio.timeout(0.5):
                await charge()
        except TimeoutError:
            await charge()
    finally:
        await transport.close_async()  # type: ignore[no-untyped-call]  # as the SDK ships it
    shop.paid.append(due.invoice)


class BillingJob:
    """One process of a nightly job. Its keys are right for as long as it lives."""

    def __init__(self, client: stripe.StripeClient) -> None:
        self._client = client
        self._keys: dict[str, str] = {}

    def charge(self, due: Due) -> None:
        """Charge one amount, under one key however often it is called."""
        key = self._keys.setdefault(due.invoice, str(uuid.uuid4()))
        self._client.v1.payment_intents.create(due.params, {"idempotency_key": key})


async def keep_the_key_in_memory(shop: Shop) -> None:
    """stripe: a process dies with its keys, an answer still on its way; two jobs stand for two processes."""
    shop.lose_the_first_answer()
    due = shop.owe()
    try:
        await asyncio.to_thread(BillingJob(shop.client()).charge, due)
    except stripe.APIConnectionError:
        await asyncio.to_thread(BillingJob(shop.client()).charge, due)
    shop.paid.append(due.invoice)
