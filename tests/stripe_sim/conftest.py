"""A simulator per test, and the real SDK in front of it over a socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
import stripe

from deploy.stripe_sim.testing import RunningSim, running_sim

stripe.enable_telemetry = False


@asynccontextmanager
async def open_client(url: str, *, api_key: str = "sk_test_suite") -> AsyncIterator[stripe.StripeClient]:
    """The SDK without retries of its own, so that every request is one request on the wire."""
    # Left to itself, the SDK reads a list of authorities for each client.
    transport = stripe.AIOHTTPClient(timeout=10, connector=aiohttp.TCPConnector())
    client = stripe.StripeClient(
        api_key, http_client=transport, base_addresses={"api": url}, max_network_retries=0
    )
    try:
        yield client
    finally:
        await transport.close_async()  # type: ignore[no-untyped-call]  # as the SDK ships it


@pytest.fixture
async def sim() -> AsyncIterator[RunningSim]:
    """A simulator with a frozen clock and one customer who has a good card."""
    async with running_sim() as running:
        running.clock.freeze(1_790_000_000)
        running.seed("cus_1", "pm_card_visa_1")
        yield running


@pytest.fixture
async def client(sim: RunningSim) -> AsyncIterator[stripe.StripeClient]:
    """The SDK, pointed at the simulator."""
    async with open_client(sim.url) as opened:
        yield opened
