"""Runs: the lock, the plan, what is due, the close. And the reads that progress and reports are made of."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from activities.ledger import sql
from activities.ledger.database import Connection, Pool
from workflows.domain.errors import RefusedToStart, StaleWrite, invariant

_SQL = sql.load("runs.sql")

_STAGING = """
CREATE TEMPORARY TABLE staged_lines (
    charge_id text NOT NULL, account text NOT NULL, customer text NOT NULL, period text NOT NULL,
    line text NOT NULL, source_row bigint NOT NULL, currency text NOT NULL, amount_minor bigint NOT NULL,
    payment_method text, description text, skip_reason text
);
CREATE TEMPORARY TABLE staged_skips (
    source_row bigint NOT NULL, customer text, line text, reason text NOT NULL, detail text
)
"""
_DROP_STAGING = "DROP TABLE IF EXISTS staged_lines, staged_skips"
FINISH_SECONDS_MAX = 1800.0  # a million lines go into the ledger in one statement


@dataclass(frozen=True, slots=True)
class Run:
    """One row of `billing_runs`."""

    run_id: str
    account: str
    period: str
    owner: str
    phase: str
    source: str
    started_by: str
    selected: int | None
    slices: int | None
    plan_hash: str | None
    reason: str | None
    locked_at: datetime
    planned_at: datetime | None
    closed_at: datetime | None
    counts: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class StagedLine:
    """One line on its way into the ledger. `skip_reason` is set where the line is not to be charged."""

    charge_id: str
    account: str
    customer: str
    period: str
    line: str
    source_row: int
    currency: str
    amount_minor: int
    payment_method: str | None
    description: str | None
    skip_reason: str | None


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A source row that has no charge in this run, and why."""

    source_row: int
    customer: str | None
    line: str | None
    reason: str
    detail: str | None


@dataclass(frozen=True, slots=True)
class DueSummary:
    """What is open in a run by the ledger's clock. Seconds are None where nothing waits."""

    open: int
    in_flight: int
    due_now: int
    next_due_seconds: float | None
    next_due_epoch_seconds: float | None


class RunLedger:
    """The `billing_runs` table and what hangs on it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def lock(
        self,
        run_id: str,
        *,
        account: str,
        period: str,
        owner: str,
        source: str,
        source_sha256: str,
        started_by: str,
    ) -> Run:
        """Take the lock of (account, period) and return whoever has it now: compare `run_id` and `owner`.

        A retry that lost its answer finds its own row and goes on with it.
        """
        row = await self._pool.fetchrow(
            _SQL["lock_run"], run_id, account, period, owner, source, source_sha256, started_by
        )
        row = row or await self._pool.fetchrow(_SQL["read_run"], run_id)
        row = row or await self._pool.fetchrow(_SQL["run_holding_period"], account, period)
        if row is None:
            raise StaleWrite(f"the lock of {account} {period} was given back just now: try again")
        return _run_from(row)

    async def read(self, run_id: str) -> Run:
        """Return a run. Raises RefusedToStart where there is none of that id."""
        row = await self._pool.fetchrow(_SQL["read_run"], run_id)
        if row is None:
            raise RefusedToStart(f"there is no run {run_id!r} in the ledger: see `chargeonce run list`")
        return _run_from(row)

    async def newest(self, *, limit: int = 50) -> list[Run]:
        """Return up to `limit` runs, newest first."""
        return [_run_from(row) for row in await self._pool.fetch(_SQL["list_runs"], limit)]

    @asynccontextmanager
    async def planning(self, run_id: str, *, slice_size: int) -> AsyncIterator["PlanWriter"]:
        """Yield a writer that gathers lines in staging tables of a session of its own.

        No transaction is open while it gathers; `finish` turns everything into the plan in one.
        """
        async with self._pool.acquire() as connection:
            # Sessions are pooled: one whose planner was cut off while it tidied up still has its tables.
            await connection.execute(_DROP_STAGING)
            await connection.execute(_STAGING)
            try:
                yield PlanWriter(connection, run_id, slice_size)
            finally:
                if not connection.is_closed():
                    await connection.execute(_DROP_STAGING)

    async def fail(self, run_id: str, reason: str) -> None:
        """Give the period back: the run never planned or charged anything.

        Raises:
            StaleWrite: It has been planned meanwhile, so it is not for this caller to give up.
        """
        if await self._pool.fetchrow(_SQL["fail_run"], run_id, reason) is None:
            raise StaleWrite(f"run {run_id} is not being planned any more")

    async def begin_settling(self, run_id: str) -> None:
        """Record that all slices are through. A repeated call changes nothing."""
        await self._pool.fetchrow(_SQL["begin_settling"], run_id)

    async def close(self, run_id: str) -> Run:
        """Freeze the counts and close. A run that is closed already is returned as it is.

        Raises:
            StaleWrite: Some charge is not settled after all.
        """
        row = await self._pool.fetchrow(_SQL["close_run"], run_id)
        run = await self.read(run_id) if row is None else _run_from(row)
        if run.phase != "closed":
            raise StaleWrite(f"run {run_id} still has open charges")
        return run

    async def counts(self, run_id: str) -> dict[str, int]:
        """Return lines by standing (I9: they add up to `selected`)."""
        rows = await self._pool.fetch(_SQL["run_counts"], run_id)
        return {row["standing"]: row["lines"] for row in rows if row["lines"]}

    async def due(self, run_id: str) -> DueSummary:
        """Return what is open and when it is due."""
        row = await self._pool.fetchrow(_SQL["due_summary"], run_id)
        invariant(row is not None, "an aggregate always has a row")
        return DueSummary(**dict(row or {}))

    async def amounts(self, run_id: str) -> list[dict[str, Any]]:
        """Return money by currency and state."""
        return [dict(row) for row in await self._pool.fetch(_SQL["amounts_by_state"], run_id)]

    async def waiting(self, run_id: str) -> list[dict[str, Any]]:
        """Return why open charges wait, how many, and until when."""
        return [dict(row) for row in await self._pool.fetch(_SQL["waiting_reasons"], run_id)]


class PlanWriter:
    """Streams lines into staging tables, then turns them into the plan."""

    def __init__(self, connection: Connection, run_id: str, slice_size: int) -> None:
        self._connection = connection
        self._run_id = run_id
        self._slice_size = slice_size

    async def stage(self, lines: Iterable[StagedLine]) -> None:
        """COPY a batch of lines into the staging table."""
        await self._connection.copy_records_to_table(
            "staged_lines",
            columns=StagedLine.__slots__,
            records=[_in_order(line) for line in lines],
        )

    async def skip(self, rows: Iterable[SkippedRow]) -> None:
        """COPY a batch of source rows that have no charge, each with its reason."""
        await self._connection.copy_records_to_table(
            "staged_skips",
            columns=SkippedRow.__slots__,
            records=[_in_order(row) for row in rows],
        )

    async def finish(self, *, selected: int, plan_hash: str) -> Run:
        """Move what was staged into the ledger and freeze the plan, in one transaction.

        Raises:
            StaleWrite: The run is not being planned any more, or another run planned the same lines at the
                same moment.
        """
        try:
            async with self._connection.transaction():
                await self._execute("insert_planned", self._run_id, self._slice_size)
                await self._execute("insert_skipped", self._run_id)
                row = await self._connection.fetchrow(
                    _SQL["finish_plan"], self._run_id, selected, plan_hash, timeout=FINISH_SECONDS_MAX
                )
                if row is None:  # raised in here, so that nothing of a plan that comes too late is committed
                    raise StaleWrite(f"run {self._run_id} is not being planned any more")
        except (asyncpg.CheckViolationError, asyncpg.UniqueViolationError) as error:
            raise StaleWrite(f"the plan of {self._run_id} met another one; it is made again") from error
        return _run_from(row)

    async def _execute(self, name: str, *arguments: Any) -> None:
        await self._connection.execute(_SQL[name], *arguments, timeout=FINISH_SECONDS_MAX)


def _in_order(record: StagedLine | SkippedRow) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in record.__slots__)


def _run_from(row: asyncpg.Record) -> Run:
    return Run(**{name: row[name] for name in Run.__dataclass_fields__})
