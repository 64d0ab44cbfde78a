"""The limiter of one process: evenly spread, per endpoint, slower after a 429."""

import asyncio
from itertools import pairwise

import pytest

from activities.limiter import (
    BURST_SECONDS,
    PAUSE_SECONDS_DEFAULT,
    PAUSE_SECONDS_MAX,
    SLOW_DOWN_FACTOR,
    SLOWEST_SHARE,
    Endpoint,
    Limiter,
)

RATE_PER_SECOND = 25.0
CREATE, CONFIRM = Endpoint.CREATE, Endpoint.CONFIRM


class Clock:
    """Monotonic time that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still."""
    return Clock()


def departures(limiter: Limiter, clock: Clock, count: int, endpoint: Endpoint = CREATE) -> list[float]:
    """Return when so many requests leave, each asking as soon as the one before has left."""
    times = []
    for _ in range(count):
        clock.seconds += max(limiter._reserve(endpoint), 0.0)
        times.append(clock.seconds)
    return times


def test_requests_are_spread_evenly(clock: Clock) -> None:
    """At 25 a second one leaves every 40 ms, and no second ever has more than 26."""
    times = departures(Limiter(RATE_PER_SECOND, clock=clock), clock, 200)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == pytest.approx([1 / RATE_PER_SECOND] * 199)


def test_an_idle_limiter_saves_nothing_up(clock: Clock) -> None:
    """After an hour of nothing, no more than the catching-up of a waking event loop leaves at once."""
    limiter = Limiter(RATE_PER_SECOND, clock=clock)
    clock.seconds += 3600
    at_once = sum(limiter._reserve(CREATE) <= 0 for _ in range(100))
    assert at_once <= 1 + BURST_SECONDS * RATE_PER_SECOND


def test_endpoints_do_not_wait_for_each_other(clock: Clock) -> None:
    """Stripe counts endpoints apart, and so does the limiter."""
    limiter = Limiter(RATE_PER_SECOND, clock=clock)
    departures(limiter, clock, 5)
    assert limiter._reserve(CONFIRM) <= 0


def test_429_pauses_and_slows_its_endpoint_alone(clock: Clock) -> None:
    """After a 429 without `Retry-After` its endpoint pauses and goes on at seven tenths, no other does."""
    limiter = Limiter(RATE_PER_SECOND, clock=clock)
    limiter.slow_down(CREATE, retry_after_seconds=None)
    assert limiter._reserve(CREATE) == pytest.approx(PAUSE_SECONDS_DEFAULT)
    assert limiter.rate_per_second(CREATE) == pytest.approx(RATE_PER_SECOND * SLOW_DOWN_FACTOR)
    assert limiter._reserve(CONFIRM) <= 0
    assert limiter.rate_per_second(CONFIRM) == RATE_PER_SECOND


def test_retry_after_is_kept(clock: Clock) -> None:
    """Nothing leaves before the time that Stripe asked for."""
    limiter = Limiter(RATE_PER_SECOND, clock=clock)
    limiter.slow_down(CREATE, retry_after_seconds=7.0)
    [first] = departures(limiter, clock, 1)
    assert first == pytest.approx(1_007.0)


def test_one_answer_never_silences_an_endpoint_for_an_hour(clock: Clock) -> None:
    """A longer `Retry-After` is its own request's due time; for the others the pause ends after a minute."""
    limiter = Limiter(RATE_PER_SECOND, clock=clock)
    limiter.slow_down(CREATE, retry_after_seconds=3_600.0)
    [first] = departures(limiter, clock, 1)
    assert first == pytest.approx(1_000.0 + PAUSE_SECONDS_MAX)


def test_a_volley_of_429s_counts_once(clock: Clock) -> None:
    """All requests of one burst are refused together: the rate goes down once, not once for each."""
    limiter = Limiter(RATE_PER_SECOND, clock=clock)
    for _ in range(50):
        limiter.slow_down(CREATE, retry_after_seconds=None)
    assert limiter.rate_per_second(CREATE) == pytest.approx(RATE_PER_SECOND * SLOW_DOWN_FACTOR)


def test_the_rate_never_dries_up_and_recovers(clock: Clock) -> None:
    """However many 429s, a twentieth is left; a minute without brings the full rate back."""
    limiter = Limiter(RATE_PER_SECOND, clock=clock)
    for _ in range(100):
        limiter.slow_down(CREATE, retry_after_seconds=None)
        clock.seconds += PAUSE_SECONDS_DEFAULT
    assert limiter.rate_per_second(CREATE) >= RATE_PER_SECOND * SLOWEST_SHARE
    clock.seconds += 60
    limiter._reserve(CREATE)
    assert limiter.rate_per_second(CREATE) == RATE_PER_SECOND


async def test_acquire_returns_at_once_while_there_is_room(clock: Clock) -> None:
    """The first request waits for nothing."""
    async with asyncio.timeout(1):
        await Limiter(RATE_PER_SECOND, clock=clock).acquire(CREATE)
