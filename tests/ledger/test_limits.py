"""The buckets of the rate limits: slots spaced by the rate, whoever leases them, whatever the clock does."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from activities.ledger.database import Pool, open_pool
from activities.ledger.limits import Lease, LimitLedger
from deploy.postgres import Database, PostgresServer
from tests.conftest import drive
from tests.ledger.planting import freeze_clock, run_as_owner

RATE_PER_SECOND = 50.0
SPACING_SECONDS = 1.005 / RATE_PER_SECOND
CLOSE = 0.3  # seconds that a busy machine may take between two statements


_accounts = itertools.count(1)


@dataclass
class Bucket:
    """One bucket, of an account that belongs to the test alone."""

    database: Database
    pool: Pool
    record_grants: bool = True
    account: str = field(default_factory=lambda: f"acct_{next(_accounts)}")

    @property
    def ledger(self) -> LimitLedger:
        """The buckets of one process."""
        return LimitLedger(self.pool, record_grants=self.record_grants)

    async def lease(self, wanted: int, *, rate_per_second: float = RATE_PER_SECOND) -> Lease:
        """Lease slots."""
        return await self.ledger.lease(self.account, "create", rate_per_second=rate_per_second, wanted=wanted)

    async def slow_down(self, pause_seconds: float) -> None:
        """Take note of a 429."""
        await self.ledger.slow_down(self.account, "create", pause_seconds=pause_seconds)

    async def set(self, column: str, expression: str) -> None:
        """Set a column to an SQL expression."""
        statement = f"UPDATE rate_limits SET {column} = {expression} WHERE account = $1"
        await run_as_owner(self.database, statement, self.account)

    async def slots(self) -> list[float]:
        """Return every granted slot in seconds since the epoch, in order."""
        rows = await self.pool.fetch(
            "SELECT extract(epoch FROM slot)::float8 AS at FROM rate_grants WHERE account = $1 ORDER BY slot",
            self.account,
        )
        return [row["at"] for row in rows]

    async def gaps(self) -> list[float]:
        """Return the seconds between granted slots."""
        return [later - earlier for earlier, later in pairwise(await self.slots())]


@pytest.fixture(scope="module")
def buckets(postgres_server: PostgresServer, ledger_template: str) -> Iterator[Database]:
    """A ledger for all tests of this module."""
    created = drive(postgres_server.create_database("buckets", template=ledger_template))
    try:
        yield created
    finally:
        drive(postgres_server.drop_database("buckets"))


@pytest.fixture
async def bucket(buckets: Database) -> AsyncIterator[Bucket]:
    """A bucket that remembers what it granted."""
    async with open_pool(buckets.app_url, connections=3) as pool:
        yield Bucket(buckets, pool)


async def test_leases_follow_each_other(bucket: Bucket) -> None:
    """The first slot is now, and the next lease begins where this one ends."""
    first = await bucket.lease(10)
    second = await bucket.lease(10)
    assert (first.slots, first.first_in_seconds, first.share) == (10, 0, 1)
    assert first.spacing_seconds == pytest.approx(SPACING_SECONDS)
    assert second.first_in_seconds > 10 * SPACING_SECONDS - CLOSE
    gaps = await bucket.gaps()
    assert gaps == pytest.approx([SPACING_SECONDS] * 19, abs=2e-6)


async def test_many_at_once_never_share_a_slot(bucket: Bucket) -> None:
    """Whoever asks at the same time as others, no two slots are closer than the rate says."""
    await asyncio.gather(*(bucket.lease(3) for _ in range(20)))
    gaps = await bucket.gaps()
    assert len(gaps) == 59
    assert min(gaps) > SPACING_SECONDS - 2e-6


async def test_an_idle_bucket_saves_nothing_up(bucket: Bucket) -> None:
    """After an hour of nothing the slots begin now, spaced as ever."""
    await bucket.lease(1)
    await bucket.set("next_slot", "clock_timestamp() - interval '1 hour'")
    assert (await bucket.lease(5)).first_in_seconds == 0
    gaps = (await bucket.gaps())[1:]
    assert gaps == pytest.approx([SPACING_SECONDS] * 4, abs=2e-6)


async def test_nobody_leases_far_ahead(bucket: Bucket) -> None:
    """One lease takes a few seconds at most; the next is told to come back, and when."""
    assert (await bucket.lease(10_000)).slots == pytest.approx(5 / SPACING_SECONDS, abs=2)
    refused = await bucket.lease(1)
    assert refused.slots in {0, 1}
    assert refused.first_in_seconds == pytest.approx(5 + SPACING_SECONDS, abs=CLOSE)


async def test_a_slow_bucket_still_gives_one(bucket: Bucket) -> None:
    """At one request in 20 s the first goes at once, and the second knows how long it has to wait."""
    assert (await bucket.lease(4, rate_per_second=0.05)).slots == 1
    second = await bucket.lease(4, rate_per_second=0.05)
    assert second.slots == 0
    assert second.first_in_seconds == pytest.approx(20.1, abs=CLOSE)


async def test_buckets_do_not_wait_for_each_other(bucket: Bucket) -> None:
    """Stripe counts accounts and endpoints apart, and so do the buckets."""
    await bucket.lease(200)
    for account, endpoint in ((bucket.account, "confirm"), (f"{bucket.account}_other", "create")):
        other = await bucket.ledger.lease(account, endpoint, rate_per_second=RATE_PER_SECOND, wanted=1)
        assert other.first_in_seconds == 0


async def test_a_429_pauses_and_slows(bucket: Bucket) -> None:
    """After the pause it goes on at seven tenths, and until then nothing is leased; so for a fresh bucket."""
    for _ in range(2):
        await bucket.slow_down(7)
        paused = await bucket.lease(1)
        assert paused.slots == 0
        assert paused.share == pytest.approx(0.7)
        assert paused.first_in_seconds == pytest.approx(7, abs=CLOSE)


async def test_a_short_pause_ends(bucket: Bucket) -> None:
    """Slots begin after it, spaced by the lower rate."""
    await bucket.slow_down(2)
    after = await bucket.lease(5)
    assert after.slots == 5
    assert after.first_in_seconds == pytest.approx(2, abs=CLOSE)
    assert after.spacing_seconds == pytest.approx(SPACING_SECONDS / 0.7, rel=1e-3)


async def test_a_volley_of_429s_counts_once(bucket: Bucket) -> None:
    """All requests of one burst are refused together: the rate goes down once, not once for each."""
    for pause_seconds in (1, 7, 3):
        await bucket.slow_down(pause_seconds)
    paused = await bucket.lease(1)
    assert paused.share == pytest.approx(0.7)
    assert paused.first_in_seconds == pytest.approx(7, abs=CLOSE)


async def test_the_rate_never_dries_up(bucket: Bucket) -> None:
    """However many 429s come one after the other, a twentieth is left."""
    for _ in range(12):
        await bucket.slow_down(0)
    assert (await bucket.lease(1)).share == pytest.approx(0.05, abs=0.02)


async def test_the_rate_recovers(bucket: Bucket) -> None:
    """Two hundredths a second come back after the pause: all of it within a minute."""
    await bucket.slow_down(0)
    for seconds, share in ((5, 0.8), (60, 1.0)):
        await bucket.set("paused_until", f"clock_timestamp() - interval '{seconds} seconds'")
        assert (await bucket.lease(1)).share == pytest.approx(share, abs=0.02)


async def test_a_clock_set_back_stops_nothing_for_long(bucket: Bucket) -> None:
    """A bucket that seems to be an hour ahead begins again within seconds, a pause within a minute."""
    await bucket.lease(1)
    await bucket.set("next_slot", "clock_timestamp() + interval '1 hour'")
    assert (await bucket.lease(1)).first_in_seconds <= 5 + SPACING_SECONDS
    await bucket.set("paused_until", "clock_timestamp() + interval '1 hour'")
    first = (await bucket.lease(1)).first_in_seconds
    second = (await bucket.lease(1)).first_in_seconds
    assert second < first <= 60


async def test_the_ledger_s_clock_does_not_matter(bucket: Bucket) -> None:
    """Stripe counts real seconds: with the ledger's clock frozen the buckets fill all the same."""
    await freeze_clock(bucket.database)
    assert (await bucket.lease(1)).slots == 1
    assert (await bucket.lease(1)).slots == 1


async def test_a_lease_leaves_commits_durable(bucket: Bucket) -> None:
    """Only its own commit does not wait for the disk; the next one on the same connection does (I1)."""
    async with open_pool(bucket.database.app_url, connections=1) as pool:
        await LimitLedger(pool).lease(bucket.account, "create", rate_per_second=50, wanted=1)
        assert await pool.fetchval("SHOW synchronous_commit") == "on"


async def test_nothing_is_recorded_unasked(bucket: Bucket) -> None:
    """Grants are kept for proofs alone."""
    bucket.record_grants = False
    assert (await bucket.lease(5)).slots == 5
    assert await bucket.slots() == []
