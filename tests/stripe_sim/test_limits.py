"""The limiters: Stripe's figures, its headers, and both kinds of 429."""

import asyncio
from typing import Any

import pytest
import stripe

from deploy.stripe_sim.errors import ApiError
from deploy.stripe_sim.limits import RateLimits
from deploy.stripe_sim.settings import Settings
from deploy.stripe_sim.testing import RunningSim
from tests.stripe_sim.calls import confirm, create, error_of

CREATE = "POST /v1/payment_intents"
CONFIRM = "POST /v1/payment_intents/{id}/confirm"
SEARCH = "GET /v1/payment_intents/search"


class Limiter:
    """A limiter whose time stands still until it is told to go on."""

    def __init__(self, **settings: Any) -> None:
        self.now = 0.0
        chosen = Settings().with_changes(settings)
        self.limits = RateLimits(lambda: chosen, lambda: self.now)

    def count_let_in(self, attempts: int, *endpoints: str, account: str = "acct_sim") -> int:
        """Send so many requests to the endpoints in turn, and return how many got in."""
        return sum(self.reason(endpoints[n % len(endpoints)], account) is None for n in range(attempts))

    def reason(self, endpoint: str, account: str = "acct_sim", object_id: str = "pi_1") -> str | None:
        """Send one request and return why it was refused."""
        try:
            held = self.limits.enter(account, endpoint, (object_id,) if "{id}" in endpoint else ())
        except ApiError as error:
            return error.headers.get("Stripe-Rate-Limited-Reason", error.code)
        if held is not None:
            self.limits.leave(held)
        return None


def test_nothing_is_limited_by_default() -> None:
    """A simulator for development refuses nothing."""
    assert Limiter().count_let_in(2_000, CREATE) == 2_000


def test_stripe_defaults() -> None:
    """The switch means 25 a second per endpoint, 20 for search and 100 for the account."""
    limiter = Limiter(stripe_defaults=True)
    assert limiter.count_let_in(40, CREATE) == 25
    assert limiter.reason(CREATE) == "endpoint-rate"
    assert limiter.count_let_in(40, SEARCH) == 20
    others = [f"GET /v1/things_{number}" for number in range(10)]
    assert limiter.count_let_in(100, *others) == 100 - 40 - 40 - 1
    assert limiter.reason("GET /v1/other") == "global-rate"
    assert limiter.count_let_in(10, CREATE, account="acct_other") == 10
    limiter.now += 1
    assert limiter.count_let_in(40, CREATE) == 25


def test_figures_can_be_changed_one_by_one() -> None:
    """What a setting names wins over Stripe's default; an endpoint's own rate wins over both."""
    limiter = Limiter(
        stripe_defaults=True,
        global_rate_per_second=1_000,
        endpoint_rate_per_second=50,
        endpoint_rates={CONFIRM: 5},
    )
    assert limiter.count_let_in(100, CREATE) == 50
    assert limiter.count_let_in(100, CONFIRM) == 5
    assert limiter.count_let_in(100, SEARCH) == 20


def test_updates_of_one_payment_intent_are_limited() -> None:
    """One PaymentIntent takes so many updates an hour; another one is not affected."""
    limiter = Limiter(object_updates_per_hour=3)
    assert limiter.count_let_in(5, CONFIRM) == 3
    assert limiter.reason(CONFIRM) == "resource-specific"
    assert limiter.reason(CONFIRM, object_id="pi_2") is None
    limiter.now += 3_600
    assert limiter.reason(CONFIRM) is None


@pytest.mark.parametrize("setting", ["global_concurrency", "endpoint_concurrency"])
async def test_concurrency(sim: RunningSim, client: stripe.StripeClient, setting: str) -> None:
    """Of five requests at once, a limiter of two lets two through; none of the others is stored."""
    sim.change(latency_ms=200, **{setting: 2})
    outcomes = await asyncio.gather(*(create(client, f"k{n}") for n in range(5)), return_exceptions=True)
    refused = [error for error in outcomes if isinstance(error, stripe.RateLimitError)]
    assert len(refused) == 3
    reasons = {(error.headers or {})["Stripe-Rate-Limited-Reason"] for error in refused}
    assert reasons == {setting.replace("_", "-")}
    assert sim.summary()["payment_intents"] == 2
    sim.change(latency_ms=0)
    for number in range(5):
        await create(client, f"k{number}")
    assert sim.summary()["payment_intents"] == 5


async def test_lock_timeout_while_the_object_is_busy(sim: RunningSim, client: stripe.StripeClient) -> None:
    """Of two confirms at once one gets 429 lock_timeout, without a request id or a reason."""
    intent = await create(client)
    sim.change(latency_ms=200, object_locks=True)
    outcomes = await asyncio.gather(
        *(confirm(client, intent.id, f"k{number}") for number in range(2)), return_exceptions=True
    )
    (refused,) = [error for error in outcomes if isinstance(error, stripe.RateLimitError)]
    headers = {name.lower(): value for name, value in (refused.headers or {}).items()}
    assert error_of(refused)["code"] == "lock_timeout"
    assert headers["stripe-should-retry"] == "true"
    assert "stripe-rate-limited-reason" not in headers
    assert "request-id" not in headers
    assert len(sim.movements) == 1


async def test_conflicts_under_load(sim: RunningSim, client: stripe.StripeClient) -> None:
    """Of twenty requests at once with one key one executes; the others get 409, and later the replay."""
    sim.change(latency_ms=200)
    outcomes = await asyncio.gather(*(create(client, "k1") for _ in range(20)), return_exceptions=True)
    conflicts = [error for error in outcomes if isinstance(error, stripe.APIError)]
    assert len(conflicts) == 19
    assert {error.http_status for error in conflicts} == {409}
    sim.change(latency_ms=0)
    again = await asyncio.gather(*(create(client, "k1") for _ in range(5)))
    assert len({intent.id for intent in again}) == 1
    assert sim.summary()["payment_intents"] == 1
