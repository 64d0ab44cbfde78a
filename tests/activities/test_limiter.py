"""One process's side of the shared limits: who goes when, who waits, and what a 429 does to everybody."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from urllib.parse import urlsplit

import asyncpg
import pytest

from activities.leased_slots import LATE_SECONDS
from activities.ledger.database import Pool, open_pool
from activities.ledger.limits import LimitLedger
from activities.limiter import PAUSE_SECONDS_MAX, Endpoint, SharedLimiter, slowed_endpoints
from deploy.postgres import Database
from tests.ledger.planting import run_as_owner

CREATE, CONFIRM = Endpoint.CREATE, Endpoint.CONFIRM
DEADLINE_SECONDS = 20


_accounts = itertools.count(1)


@dataclass
class Limits:
    """The limits of an account that belongs to the test alone."""

    pool: Pool
    account: str = field(default_factory=lambda: f"acct_{next(_accounts)}")

    def limiter(self, rate_per_second: float, *, spare_share: float = 0.0) -> SharedLimiter:
        """Return what one more process has."""
        ledger = LimitLedger(self.pool, record_grants=True)
        return SharedLimiter(ledger, self.account, rate_per_second=rate_per_second, spare_share=spare_share)

    async def granted(self) -> int:
        """Return how many slots were leased in all."""
        statement = "SELECT count(*) FROM rate_grants WHERE account = $1"
        return await self.pool.fetchval(statement, self.account)  # type: ignore[no-any-return]


@pytest.fixture
async def limits(stage: Database) -> AsyncIterator[Limits]:
    """The limits of a new account."""
    async with open_pool(stage.app_url, connections=3) as pool:
        yield Limits(pool)


async def departures(one: SharedLimiter, count: int, endpoint: Endpoint = CREATE) -> list[float]:
    """Return when so many requests leave that were all asked for at the same time."""
    times: list[float] = []

    async def leave() -> None:
        await one.acquire(endpoint)
        times.append(time.monotonic())

    async with asyncio.timeout(DEADLINE_SECONDS):
        await asyncio.gather(*(leave() for _ in range(count)))
    return times


async def test_requests_are_spread_evenly(limits: Limits) -> None:
    """Asked for at once, they leave one after the other, none before its slot."""
    times = await departures(limits.limiter(100), 50)
    assert times[-1] - times[0] > 0.9 * 49 / 100
    assert sum(later - earlier > 0.002 for earlier, later in pairwise(times)) > 40


async def test_only_what_is_asked_for_is_leased(limits: Limits) -> None:
    """Whoever asks now and then leases one slot at a time, so nothing is kept from other processes."""
    one = limits.limiter(20)
    for _ in range(4):
        await one.acquire(CREATE)
    assert await limits.granted() == 4


async def test_a_lease_serves_many(limits: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
    """At high rates slots are leased ahead of need: a statement for dozens of requests."""
    statements = 0
    lease = LimitLedger.lease

    async def count(*arguments: object, **options: object) -> object:
        nonlocal statements
        statements += 1
        return await lease(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(LimitLedger, "lease", count)
    await departures(limits.limiter(2_000), 1_000)
    assert statements < 50


async def test_a_share_is_left_free(limits: Limits) -> None:
    """With a fifth spared, no more than four fifths of the limit are used."""
    one = limits.limiter(100, spare_share=0.2)
    times = await departures(one, 41)
    assert one.rate_per_second(CREATE) == pytest.approx(80)
    assert times[-1] - times[0] > 0.9 * 40 / 80


async def test_a_429_slows_every_process(limits: Limits) -> None:
    """One process is told to wait a second; another one waits as well, and both go on more slowly."""
    one, other = limits.limiter(50), limits.limiter(50)
    await departures(one, 1)
    await departures(other, 1)
    began = time.monotonic()
    one.slow_down(CREATE, retry_after_seconds=1.0)
    [first] = await departures(one, 1)
    [second] = await departures(other, 1)
    assert min(first, second) - began > 0.9
    for process in (one, other):
        assert process.rate_per_second(CREATE) == pytest.approx(35, abs=5)
        assert process.rate_per_second(CONFIRM) == 50


async def test_slots_in_hand_are_let_go_of_at_a_429(limits: Limits) -> None:
    """What was leased before a 429 is not used after it."""
    one = limits.limiter(20)
    waiting = asyncio.create_task(departures(one, 4))
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not await limits.granted():  # noqa: ASYNC110 - nobody signals
            await asyncio.sleep(0.01)
    began = time.monotonic()
    one.slow_down(CREATE, retry_after_seconds=0.5)
    assert (await waiting)[-1] - began > 0.5


async def test_one_answer_never_silences_an_endpoint_for_an_hour(limits: Limits) -> None:
    """A longer `Retry-After` is its own request's due time; for the others the pause ends after a minute."""
    limits.limiter(50).slow_down(CREATE, retry_after_seconds=3_600.0)
    left = "SELECT extract(epoch FROM paused_until - clock_timestamp()) FROM rate_limits WHERE account = $1"
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (seconds := await limits.pool.fetchval(left, limits.account)) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert 0 < seconds <= PAUSE_SECONDS_MAX


@pytest.mark.parametrize(
    ("reason", "slowed"),
    [
        (None, {CREATE}),
        ("rate_limit", {CREATE}),
        ("endpoint-rate", {CREATE}),
        ("endpoint-concurrency", {CREATE}),
        ("global-rate", set(Endpoint)),
        ("global-concurrency", set(Endpoint)),
        ("resource-specific", set()),
        ("lock_timeout", set()),
    ],
)
def test_the_reason_says_who_slows_down(reason: str | None, slowed: set[Endpoint]) -> None:
    """Too much of one endpoint, of the account, or of one object: then the rate is not the trouble."""
    assert set(slowed_endpoints(CREATE, reason)) == slowed


async def test_missed_slots_are_lost(limits: Limits) -> None:
    """A process that was frozen for a second does not send in a burst what it could not send then."""
    one = limits.limiter(100)
    waiting = asyncio.create_task(departures(one, 60))
    await departures(one, 1)
    time.sleep(1)  # noqa: ASYNC251 - the whole process stands still
    thawed = time.monotonic()
    times = await waiting
    at_once = [left for left in times if thawed <= left < thawed + 0.01]
    assert len(at_once) <= LATE_SECONDS * 100 + 2


class Cable:
    """A way to the database that can be cut."""

    def __init__(self, database_url: str) -> None:
        self._target = urlsplit(database_url)
        self._writers: list[asyncio.StreamWriter] = []
        self.is_cut = False

    def url(self, port: int) -> str:
        """Return the database's URL by way of this cable."""
        return self._target._replace(
            netloc=f"{self._target.username}:{self._target.password}@127.0.0.1:{port}"
        ).geturl()

    def cut(self) -> None:
        """End every connection and take no more."""
        self.is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection in both directions."""
        self._writers.append(writer)
        if self.is_cut:
            writer.transport.abort()
            return
        there = await asyncio.open_connection(self._target.hostname, self._target.port)
        self._writers.append(there[1])
        await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


@asynccontextmanager
async def open_cable(database: Database) -> AsyncIterator[tuple[Cable, Pool]]:
    """Yield a cable and a pool that goes through it."""
    cable = Cable(database.app_url)
    server = await asyncio.start_server(cable.carry, "127.0.0.1", 0)
    async with server, open_pool(cable.url(server.sockets[0].getsockname()[1]), connections=2) as pool:
        yield cable, pool


async def test_without_the_database_everybody_waits(stage: Database) -> None:
    """Nothing is sent and nothing fails while the database is away; then they go on (I10)."""
    async with open_cable(stage) as (cable, pool):
        one = Limits(pool).limiter(50)
        await one.acquire(CREATE)
        cable.cut()
        waiting = asyncio.create_task(departures(one, 3))
        done, _ = await asyncio.wait([waiting], timeout=0.5)
        assert not done
        cable.is_cut = False
        assert len(await waiting) == 3


async def test_what_is_wrong_for_good_reaches_those_who_wait(database: Database) -> None:
    """A ledger without the limits is no outage: waiting would never end."""
    await run_as_owner(database, "DROP FUNCTION lease_slots")
    async with open_pool(database.app_url, connections=1) as pool:
        with pytest.raises(asyncpg.UndefinedFunctionError):
            await Limits(pool).limiter(50).acquire(CREATE)


async def test_those_who_gave_up_take_no_slots(limits: Limits) -> None:
    """Of a hundred who waited and were cancelled, none is ahead of who comes next."""
    one = limits.limiter(4)
    crowd = [asyncio.create_task(one.acquire(CREATE)) for _ in range(100)]
    await asyncio.wait(crowd, return_when=asyncio.FIRST_COMPLETED)
    for task in crowd:
        task.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)
    began = time.monotonic()
    await departures(one, 1)
    assert time.monotonic() - began < 2
