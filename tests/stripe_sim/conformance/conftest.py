"""One client, two servers: the simulator always, real Stripe's test mode when somebody gives a key for it."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import stripe

from deploy.stripe_sim.testing import running_sim

KEY_VARIABLE = "STRIPE_CONFORMANCE_TEST_KEY"
# The real API allows 25 requests a second in test mode; the suite is sequential and far below.
TIMEOUT_SECONDS = 30


@asynccontextmanager
async def _open(api_key: str, **options: Any) -> AsyncIterator[stripe.StripeClient]:
    transport = stripe.AIOHTTPClient(timeout=TIMEOUT_SECONDS)
    try:
        yield stripe.StripeClient(api_key, http_client=transport, max_network_retries=0, **options)
    finally:
        await transport.close_async()  # type: ignore[no-untyped-call]  # as the SDK ships it


SERVERS = ["simulator", "stripe test mode"] if os.environ.get(KEY_VARIABLE) else ["simulator"]


@pytest.fixture(params=SERVERS)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[stripe.StripeClient]:
    """The official SDK in front of the simulator, or of real Stripe if there is a test key."""
    if request.param == "simulator":
        async with (
            running_sim() as sim,
            _open("sk_test_conformance", base_addresses={"api": sim.url}) as opened,
        ):
            yield opened
        return
    api_key = os.environ[KEY_VARIABLE]
    if not api_key.startswith("sk_test_"):
        pytest.fail(f"{KEY_VARIABLE} is no sk_test_ key; this suite touches nothing but test mode")
    async with _open(api_key) as opened:
        yield opened


@pytest.fixture
async def customer(client: stripe.StripeClient) -> AsyncIterator[str]:
    """A customer of the test's own, deleted again afterwards."""
    made = await client.v1.customers.create_async({"description": "conformance"})
    yield made.id
    found = await client.v1.customers.retrieve_async(made.id)
    if not getattr(found, "deleted", False):
        await client.v1.customers.delete_async(made.id)
