"""Rate limits: one token bucket per account and endpoint, as at Stripe, holding one second's worth.

Buckets fill by real time: a frozen clock must not stop the world.
"""

import time
from collections.abc import Callable

from deploy.stripe_sim.errors import ApiError
from deploy.stripe_sim.settings import Settings


class RateLimits:
    """Refuses what comes too fast (429, before the idempotency layer, so nothing is stored)."""

    def __init__(
        self, settings: Callable[[], Settings], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}

    def check(self, account: str, endpoint: str) -> None:
        """Take one token, or raise ApiError 429 with `Stripe-Rate-Limited-Reason: endpoint-rate`."""
        settings = self._settings()
        rate = settings.endpoint_rates.get(endpoint, settings.endpoint_rate_per_second)
        if rate <= 0:
            return
        name = (account, endpoint)
        now = self._monotonic()
        burst = max(1.0, rate)
        tokens, at = self._buckets.get(name, (burst, now))
        tokens = min(burst, tokens + (now - at) * rate)
        if tokens < 1:
            self._buckets[name] = (tokens, now)
            raise too_many_requests({"Stripe-Rate-Limited-Reason": "endpoint-rate"})
        self._buckets[name] = (tokens - 1, now)


def too_many_requests(headers: dict[str, str], code: str = "rate_limit") -> ApiError:
    """Return Stripe's 429; `lock_timeout` is the other kind, which carries no reason header."""
    message = (
        "Request rate limit exceeded. You can learn more about rate limits here https://stripe.com/rate-limits."
        if code == "rate_limit"
        else "This object cannot be accessed right now because another API request is accessing it."
    )
    return ApiError(429, message, code=code, headers=headers)
