"""The limits of one process alone, without a database: what slows down is seen, and nobody waits long."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from activities.limiter import PAUSE_SECONDS_MAX, Endpoint, Limiter, slowed_endpoints

PAUSE_SECONDS_DEFAULT = 1.0
SLOW_DOWN_FACTOR = 0.7


@dataclass(slots=True)
class _Bucket:
    rate_per_second: float
    next_free_seconds: float


class LocalLimiter(Limiter):
    """Lets `rate_per_second` requests per endpoint go, spread evenly, and after a 429 fewer for good."""

    def __init__(self, rate_per_second: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets = {endpoint: _Bucket(rate_per_second, clock()) for endpoint in Endpoint}

    async def acquire(self, endpoint: Endpoint) -> None:
        """Return when one request to `endpoint` may leave."""
        now, bucket = self._clock(), self._buckets[endpoint]
        slot_seconds = max(bucket.next_free_seconds, now)
        bucket.next_free_seconds = slot_seconds + 1.0 / bucket.rate_per_second
        if slot_seconds > now:
            await asyncio.sleep(slot_seconds - now)

    def slow_down(
        self, endpoint: Endpoint, *, retry_after_seconds: float | None, reason: str | None = None
    ) -> None:
        """Pause the endpoint, and let it go on more slowly."""
        pause_seconds = PAUSE_SECONDS_DEFAULT if retry_after_seconds is None else retry_after_seconds
        for slowed in slowed_endpoints(endpoint, reason):
            bucket = self._buckets[slowed]
            bucket.next_free_seconds = self._clock() + min(pause_seconds, PAUSE_SECONDS_MAX)
            bucket.rate_per_second *= SLOW_DOWN_FACTOR

    def rate_per_second(self, endpoint: Endpoint) -> float:
        """Return the rate that `endpoint` goes at now."""
        return self._buckets[endpoint].rate_per_second
