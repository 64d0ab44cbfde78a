"""How fast requests may leave this process: one bucket per endpoint, as Stripe counts them.

Stripe limits each endpoint of an account on its own, 25 requests a second by default
(https://docs.stripe.com/rate-limits). Waiting here is local: nothing has been intended yet, and nothing is
ever recorded as unknown because of it (invariant I10).
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

SLOWEST_SHARE = 0.05
SLOW_DOWN_FACTOR = 0.7
RECOVERY_SHARE_PER_SECOND = 0.02
PAUSE_SECONDS_DEFAULT = 1.0
PAUSE_SECONDS_MAX = 60.0  # one answer must not silence an endpoint, and everyone's work on it, for an hour
BURST_SECONDS = 0.05  # a waking event loop may catch up on this much, and no more


class Endpoint(StrEnum):
    """The operations that Stripe limits separately."""

    CREATE = "create"
    CONFIRM = "confirm"
    CANCEL = "cancel"
    REFUND = "refund"
    RETRIEVE = "retrieve"
    LIST = "list"
    CUSTOMERS = "customers"


@dataclass(slots=True)
class _Bucket:
    rate_per_second: float
    next_free_seconds: float
    recovered_at_seconds: float


class Limiter:
    """Lets at most `rate_per_second` requests per endpoint go, spread evenly, slower after a 429."""

    def __init__(self, rate_per_second: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate_max = rate_per_second
        self._clock = clock
        now = clock()
        self._buckets = {endpoint: _Bucket(rate_per_second, now, now) for endpoint in Endpoint}

    async def acquire(self, endpoint: Endpoint) -> None:
        """Return when one request to `endpoint` may leave. Cancelling the wait gives nothing back."""
        delay_seconds = self._reserve(endpoint)
        if delay_seconds > 0:
            await asyncio.sleep(delay_seconds)

    def slow_down(self, endpoint: Endpoint, *, retry_after_seconds: float | None) -> None:
        """Stripe said 429: pause, for 60 s at most, and go on more slowly; the rate recovers bit by bit."""
        now, bucket = self._clock(), self._buckets[endpoint]
        pause_seconds = PAUSE_SECONDS_DEFAULT if retry_after_seconds is None else retry_after_seconds
        pause_seconds = min(pause_seconds, PAUSE_SECONDS_MAX)
        if bucket.next_free_seconds < now + pause_seconds:
            bucket.next_free_seconds = now + pause_seconds
            slowest = self._rate_max * SLOWEST_SHARE
            bucket.rate_per_second = max(slowest, bucket.rate_per_second * SLOW_DOWN_FACTOR)
        bucket.recovered_at_seconds = now

    def rate_per_second(self, endpoint: Endpoint) -> float:
        """Return the rate that `endpoint` goes at now, after slowing down and recovering."""
        return self._buckets[endpoint].rate_per_second

    def _reserve(self, endpoint: Endpoint) -> float:
        now, bucket = self._clock(), self._buckets[endpoint]
        self._recover(bucket, now)
        slot = max(bucket.next_free_seconds, now - BURST_SECONDS)
        bucket.next_free_seconds = slot + 1.0 / bucket.rate_per_second
        return slot - now

    def _recover(self, bucket: _Bucket, now: float) -> None:
        if bucket.rate_per_second < self._rate_max:
            gained = (now - bucket.recovered_at_seconds) * RECOVERY_SHARE_PER_SECOND * self._rate_max
            bucket.rate_per_second = min(self._rate_max, bucket.rate_per_second + gained)
        bucket.recovered_at_seconds = now
