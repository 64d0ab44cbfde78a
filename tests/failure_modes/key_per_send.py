"""Unsafe on purpose: the key is made by something that runs each time a request leaves.

Each client retries as its library invites to. Stripe has booked the first request when its answer is lost.
"""

import asyncio
import uuid
from collections.abc import Mapping
from types import SimpleNamespace

import aiohttp
import httpx
import requests
import stripe
from requests.auth import AuthBase
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_none

from tests.failure_modes.shop import Due, Shop


async def stamp_in_a_request_hook(shop: Shop) -> None:
    """httpx: `event_hooks` puts a key on whatever is sent, also on what is sent again."""
    shop.lose_the_first_answer()
    shop.owe()

    async def stamp(request: httpx.Request) -> None:
        request.headers["Idempotency-Key"] = str(uuid.uuid4())

    hooks = {"request": [stamp]}
    async with httpx.AsyncClient(headers=shop.headers, event_hooks=hooks) as client:

        @retry(
            retry=retry_if_exception_type(httpx.TransportError), stop=stop_after_attempt(3), wait=wait_none()
        )
        async def charge(due: Due) -> None:
            answer = await client.post(shop.charges_url, data=due.form)
            answer.raise_for_status()
            shop.paid.append(due.invoice)

        for due in shop.dues:
            await charge(due)


class StampingTransport(stripe.RequestsClient):
    """The SDK calls `request` for each attempt, its own retries included."""

    def request(  # type: ignore[override]  # the SDK overrides itself like this
        self, method: str, url: str, headers: Mapping[str, str] | None, post_data: object = None
    ) -> tuple[bytes, int, Mapping[str, str]]:
        """Send with a key of this attempt's own."""
        stamped = {**(headers or {}), "Idempotency-Key": str(uuid.uuid4())}
        return super().request(method, url, stamped, post_data)


async def stamp_in_the_transport(shop: Shop) -> None:
    """stripe: a transport of one's own replaces the key that the SDK keeps over its retries."""
    shop.lose_the_first_answer()
    due = shop.owe()
    client = shop.client(StampingTransport(), retries=2)
    await asyncio.to_thread(client.v1.payment_intents.create, due.params)
    shop.paid.append(due.invoice)


class StripeAuth(AuthBase):
    """`requests` calls it for the headers of each request that it prepares."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add what every call to Stripe needs."""
        request.headers.update(self._headers)
        request.headers["Idempotency-Key"] = str(uuid.uuid4())
        return request


async def stamp_in_a_header_callback(shop: Shop) -> None:
    """requests: a callback for headers, set once on the session, runs once per request."""
    shop.lose_the_first_answer()
    due = shop.owe()

    def charge() -> None:
        with requests.Session() as session:
            session.auth = StripeAuth(shop.headers)
            for attempt in range(1, 4):
                try:
                    answer = session.post(shop.charges_url, data=due.form, timeout=10)
                except requests.ConnectionError:
                    if attempt == 3:
                        raise
                    continue
                answer.raise_for_status()
                return

    await asyncio.to_thread(charge)
    shop.paid.append(due.invoice)


async def overwrite_in_a_trace(shop: Shop) -> None:
    """aiohttp: the call site has a stable key, and a tracing hook from another service replaces it."""
    shop.lose_the_first_answer()
    due = shop.owe()

    async def trace(
        session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceRequestStartParams
    ) -> None:
        params.headers["X-Trace-Id"] = str(uuid.uuid4())
        params.headers["Idempotency-Key"] = str(uuid.uuid4())

    tracing = aiohttp.TraceConfig()
    tracing.on_request_start.append(trace)
    stable = {"Idempotency-Key": f"charge-{due.invoice}"}
    async with aiohttp.ClientSession(headers=shop.headers, trace_configs=[tracing]) as session:

        @retry(
            retry=retry_if_exception_type(aiohttp.ClientError), stop=stop_after_attempt(3), wait=wait_none()
        )
        async def charge() -> None:
            async with session.post(shop.charges_url, data=due.form, headers=stable) as answer:
                answer.raise_for_status()

        await charge()
    shop.paid.append(due.invoice)
