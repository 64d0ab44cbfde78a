"""A run as its closing pack shows it: every file over the same moment, row by row, nothing held in memory."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from activities.ledger import sql
from activities.ledger.database import Connection, Pool
from activities.ledger.rows import Row
from workflows.domain.errors import RefusedToStart

_SQL = sql.load("export.sql")
_COUNTS = sql.load("runs.sql")["run_counts"]
ROWS_PER_FETCH = 2_000
# The first row of a million may have to wait for all of them to be sorted.
FETCH_SECONDS_MAX = 900.0


@dataclass(frozen=True, slots=True)
class RunHeader:
    """The run whose pack it is. `counts` are lines by standing, `now` is the moment by the ledger's clock."""

    run_id: str
    account: str
    period: str
    phase: str
    selected: int | None
    plan_hash: str | None
    locked_at: datetime
    closed_at: datetime | None
    now: datetime
    counts: Mapping[str, int]
    plan: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class SettlementWindow:
    """Between which moments Stripe can have moved something of a run's charges; by the ledger's clock."""

    account: str
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of the ledger, for as long as its transaction is open."""

    header: RunHeader
    _connection: Connection

    async def batches(self, name: str) -> AsyncIterator[list[Row]]:
        """Yield the rows of a block of export.sql, some thousand at a time."""
        cursor = await self._connection.cursor(_SQL[name], self.header.run_id, timeout=FETCH_SECONDS_MAX)
        while rows := await cursor.fetch(ROWS_PER_FETCH, timeout=FETCH_SECONDS_MAX):
            yield rows


@asynccontextmanager
async def open_snapshot(pool: Pool, run_id: str) -> AsyncIterator[Snapshot]:
    """Yield one moment of a run. Raises RefusedToStart where the ledger has none of that id.

    Stripe is asked before or after, never while it is open.
    """
    async with (
        pool.acquire() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        row = await connection.fetchrow(_SQL["export_header"], run_id)
        if row is None:
            raise _no_run(run_id)
        counted = await connection.fetch(_COUNTS, run_id, timeout=FETCH_SECONDS_MAX)
        plan = await connection.fetch(_SQL["export_plan_totals"], run_id)
        header = RunHeader(
            **dict(row),
            counts={each["standing"]: each["lines"] for each in counted if each["lines"]},
            plan=[dict(each) for each in plan],
        )
        yield Snapshot(header, connection)


async def read_settlement_window(pool: Pool, run_id: str) -> SettlementWindow:
    """Return between which moments Stripe can have moved something of a run's charges.

    Raises:
        RefusedToStart: There is no such run.
    """
    row = await pool.fetchrow(_SQL["settlement_window"], run_id, timeout=FETCH_SECONDS_MAX)
    if row is None:
        raise _no_run(run_id)
    return SettlementWindow(row["account"], row["since"], row["until"])


def _no_run(run_id: str) -> RefusedToStart:
    return RefusedToStart(f"there is no run {run_id!r} in the ledger: see `chargeonce run list`")
