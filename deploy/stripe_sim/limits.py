"""Stripe's limiters, off until a setting turns them on (docs.stripe.com/rate-limits).

Rates: a token bucket per account, and one per account and endpoint, each holding one second's worth.
Concurrency: requests that run at the same time, per account and per endpoint. Resources: so many updates of
one PaymentIntent an hour, and one request at a time per object (the other kind of 429, `lock_timeout`). All
of them answer 429 in front of the idempotency layer, so nothing is stored.

Buckets fill by real time: a frozen clock must not stop the world.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from deploy.stripe_sim.errors import ApiError
from deploy.stripe_sim.settings import Settings

# docs.stripe.com/rate-limits; the numbers of the concurrency limiters are not published.
STRIPE_GLOBAL_RATE: Final = 100.0
STRIPE_ENDPOINT_RATE: Final = 25.0
STRIPE_SEARCH_RATE: Final = 20.0
STRIPE_UPDATES_PER_HOUR: Final = 1_000
HOUR_SECONDS: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class Figures:
    """The limits in force; 0 is no limit."""

    global_rate: float
    endpoint_rate: float
    search_rate: float
    endpoint_rates: Mapping[str, float]
    global_concurrency: int
    endpoint_concurrency: int
    updates_per_hour: int
    locks_objects: bool

    def rate_of(self, endpoint: str) -> float:
        """Return the rate of an endpoint, which has its own, that of search, or that of all the others."""
        general = self.search_rate if endpoint.endswith("/search") else self.endpoint_rate
        return self.endpoint_rates.get(endpoint, general)

    @property
    def any(self) -> bool:
        """Whether anything is limited at all."""
        rates = self.global_rate or self.endpoint_rate or self.search_rate or self.endpoint_rates
        return bool(
            rates
            or self.global_concurrency
            or self.endpoint_concurrency
            or self.updates_per_hour
            or self.locks_objects
        )


def read_figures(settings: Settings) -> Figures:
    """Return the limits that the settings ask for, with Stripe's own where `stripe_defaults` is on."""
    is_stripe = settings.stripe_defaults
    return Figures(
        settings.global_rate_per_second or (STRIPE_GLOBAL_RATE if is_stripe else 0.0),
        settings.endpoint_rate_per_second or (STRIPE_ENDPOINT_RATE if is_stripe else 0.0),
        settings.search_rate_per_second or (STRIPE_SEARCH_RATE if is_stripe else 0.0),
        settings.endpoint_rates,
        int(settings.global_concurrency),
        int(settings.endpoint_concurrency),
        int(settings.object_updates_per_hour) or (STRIPE_UPDATES_PER_HOUR if is_stripe else 0),
        settings.object_locks,
    )


@dataclass(slots=True)
class Held:
    """What a running request occupies until it leaves."""

    account: str
    endpoint: str
    object_id: str | None


@dataclass(slots=True)
class _Load:
    total: int = 0
    per_endpoint: dict[str, int] = field(default_factory=dict)


class RateLimits:
    """Refuses what comes too fast, or too much at once."""

    def __init__(
        self, settings: Callable[[], Settings], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._known: Settings | None = None
        self._figures = read_figures(settings())
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}
        self._loads: dict[str, _Load] = {}
        self._locked: set[tuple[str, str]] = set()
        self._updates: dict[tuple[str, str], int] = {}
        self._hour_began = monotonic()

    def enter(self, account: str, endpoint: str, ids: tuple[str, ...]) -> Held | None:
        """Let a request in, or raise ApiError 429; what it returns must be given to `leave`."""
        settings = self._settings()
        if settings is not self._known:
            self._known, self._figures = settings, read_figures(settings)
        figures = self._figures
        if not figures.any:
            return None
        object_id = ids[0] if ids and endpoint.startswith("POST ") else None
        held = Held(account, endpoint, object_id)
        load = self._loads.setdefault(account, _Load())
        self._check_concurrency(load, endpoint, figures)
        if object_id is not None:
            self._check_object(account, endpoint, object_id, figures)
        self._take_token((account, ""), figures.global_rate, "global-rate")
        self._take_token((account, endpoint), figures.rate_of(endpoint), "endpoint-rate")
        load.total += 1
        load.per_endpoint[endpoint] = load.per_endpoint.get(endpoint, 0) + 1
        if object_id is not None:
            self._locked.add((account, object_id))
        return held

    def leave(self, held: Held) -> None:
        """Take note that a request is over."""
        load = self._loads[held.account]
        load.total -= 1
        load.per_endpoint[held.endpoint] -= 1
        if held.object_id is not None:
            self._locked.discard((held.account, held.object_id))

    def _check_concurrency(self, load: _Load, endpoint: str, figures: Figures) -> None:
        if figures.global_concurrency and load.total >= figures.global_concurrency:
            raise _limited("global-concurrency")
        running = load.per_endpoint.get(endpoint, 0)
        if figures.endpoint_concurrency and running >= figures.endpoint_concurrency:
            raise _limited("endpoint-concurrency")

    def _check_object(self, account: str, endpoint: str, object_id: str, figures: Figures) -> None:
        name = (account, object_id)
        if figures.locks_objects and name in self._locked:
            raise too_many_requests({"Stripe-Should-Retry": "true"}, "lock_timeout")
        if figures.updates_per_hour and endpoint.startswith("POST /v1/payment_intents/"):
            now = self._monotonic()
            if now - self._hour_began >= HOUR_SECONDS:
                self._hour_began = now
                self._updates.clear()
            updates = self._updates[name] = self._updates.get(name, 0) + 1
            if updates > figures.updates_per_hour:
                raise _limited("resource-specific")

    def _take_token(self, name: tuple[str, str], rate: float, reason: str) -> None:
        if rate <= 0:
            return
        now = self._monotonic()
        burst = max(1.0, rate)
        tokens, at = self._buckets.get(name, (burst, now))
        tokens = min(burst, tokens + (now - at) * rate)
        if tokens < 1:
            self._buckets[name] = (tokens, now)
            raise _limited(reason)
        self._buckets[name] = (tokens - 1, now)


def _limited(reason: str) -> ApiError:
    return too_many_requests({"Stripe-Rate-Limited-Reason": reason})


def too_many_requests(headers: dict[str, str], code: str = "rate_limit") -> ApiError:
    """Return Stripe's 429; `lock_timeout` is the other kind, which carries no reason header."""
    message = (
        "Request rate limit exceeded. You can learn more about rate limits here https://stripe.com/rate-limits."
        if code == "rate_limit"
        else "This object cannot be accessed right now because another API request is accessing it."
    )
    return ApiError(429, message, code=code, headers=headers)
