"""How fast requests may leave: Stripe's limits, per account and endpoint, shared by all worker processes.

Stripe limits each endpoint of an account on its own, 25 requests a second by default
(https://docs.stripe.com/rate-limits). Waiting here is local: nothing has been intended yet, and nothing is
ever recorded as unknown because of it (invariant I10). Without the database nobody goes.
"""

import time
from enum import StrEnum
from typing import Protocol

from activities.leased_slots import LeasedSlots
from activities.ledger.limits import LimitLedger

PAUSE_SECONDS_DEFAULT = 1.0
PAUSE_SECONDS_MAX = 60.0  # one answer must not silence an endpoint, and everyone's work on it, for an hour
# https://docs.stripe.com/rate-limits: the first are about one object, the others about all of an account.
_REASONS_OF_ONE_OBJECT = frozenset({"resource-specific", "lock_timeout"})
_REASONS_OF_THE_ACCOUNT = frozenset({"global-rate", "global-concurrency"})
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Endpoint(StrEnum):
    """The operations that Stripe limits separately."""

    CREATE = "create"
    CONFIRM = "confirm"
    CANCEL = "cancel"
    REFUND = "refund"
    RETRIEVE = "retrieve"
    LIST = "list"
    CUSTOMERS = "customers"


class Limiter(Protocol):
    """The limits of one account."""

    async def acquire(self, endpoint: Endpoint) -> None:
        """Return when one request to `endpoint` may leave. Cancelling the wait gives nothing back."""

    def slow_down(
        self, endpoint: Endpoint, *, retry_after_seconds: float | None, reason: str | None = None
    ) -> None:
        """Stripe said 429: pause, for 60 s at most, and go on more slowly; the rate recovers bit by bit.

        `reason` is the answer's `Stripe-Rate-Limited-Reason`, or without one its code. It says what was too
        much: the endpoint, the whole account, or one object alone, and then nobody else slows down.
        """

    def rate_per_second(self, endpoint: Endpoint) -> float:
        """Return the rate that `endpoint` goes at now, after slowing down and recovering."""


def slowed_endpoints(endpoint: Endpoint, reason: str | None) -> tuple[Endpoint, ...]:
    """Return which endpoints a 429 of `endpoint` is about; without a reason that we know, itself."""
    if reason in _REASONS_OF_ONE_OBJECT:
        return ()
    return tuple(Endpoint) if reason in _REASONS_OF_THE_ACCOUNT else (endpoint,)


class SharedLimiter(Limiter):
    """The limits of one account over all processes that use the same database."""

    def __init__(
        self, ledger: LimitLedger, account: str, *, rate_per_second: float, spare_share: float = 0.0
    ) -> None:
        """Share the buckets of `account`.

        Args:
            ledger: Where the buckets are.
            account: Whose limits.
            rate_per_second: Requests per second and endpoint at most, above 0.
            spare_share: What share of that is left to others, such as the merchant's shop: 0 to 0.9.
        """
        self._lines = {
            endpoint: LeasedSlots(
                ledger,
                account,
                endpoint,
                rate_per_second=rate_per_second * (1 - spare_share),
                clock=_read_clock,
            )
            for endpoint in Endpoint
        }

    async def acquire(self, endpoint: Endpoint) -> None:
        """Return when one request to `endpoint` may leave. Cancelling the wait gives nothing back."""
        await self._lines[endpoint].acquire()

    def slow_down(
        self, endpoint: Endpoint, *, retry_after_seconds: float | None, reason: str | None = None
    ) -> None:
        """Stripe said 429: pause, for 60 s at most, and go on more slowly, in all processes."""
        pause_seconds = PAUSE_SECONDS_DEFAULT if retry_after_seconds is None else retry_after_seconds
        for slowed in slowed_endpoints(endpoint, reason):
            self._lines[slowed].slow_down(min(pause_seconds, PAUSE_SECONDS_MAX))

    def rate_per_second(self, endpoint: Endpoint) -> float:
        """Return the rate of all processes together, as of this one's last lease."""
        return self._lines[endpoint].rate_per_second


def _read_clock() -> float:
    return time.clock_gettime(_CLOCK)
