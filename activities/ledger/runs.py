"""Runs: the lock, what is due, the close. And the reads that progress and reports are made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from activities.ledger import sql
from activities.ledger.database import Pool
from activities.ledger.follow_ups import FollowUpLedger, FollowUpsDue
from workflows.domain.errors import RefusedToStart, StaleWrite

_SQL = sql.load("runs.sql")


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
    hold: str | None = None
    hold_reason: str | None = None
    canceling: bool = False
    canary_released: bool = False
    approved_hash: str | None = None
    approved_by: str | None = None
    source_sha256: str = ""
    request: Mapping[str, Any] | None = None
    report: Mapping[str, Any] | None = None
    charging_closed_at: datetime | None = None
    charging_report: Mapping[str, Any] | None = None

    @property
    def newest_report(self) -> Mapping[str, Any] | None:
        """What the close found, or until then the end of the charging."""
        return self.report or self.charging_report


@dataclass(frozen=True, slots=True)
class DueSummary:
    """What is open in a run by the ledger's clock. Seconds are None where nothing waits.

    Of a held run only what is in flight is carried on: `in_flight_due_now` and what follows count that alone.
    """

    open: int
    in_flight: int
    due_now: int
    next_due_seconds: float | None
    next_due_epoch_seconds: float | None
    in_flight_due_now: int = 0
    next_in_flight_due_seconds: float | None = None
    hold: str | None = None
    hold_reason: str | None = None
    canceling: bool = False


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
        request: Mapping[str, Any] | None = None,
    ) -> Run:
        """Take the lock of (account, period) and return whoever has it now: compare `run_id` and `owner`.

        A retry that lost its answer finds its own row and goes on with it. `request` is what the run was
        asked for, as JSON: whoever recovers the run asks for the same.
        """
        row = await self._pool.fetchrow(
            _SQL["lock_run"],
            run_id,
            account,
            period,
            owner,
            source,
            source_sha256,
            started_by,
            dict(request or {}),
        )
        row = row or await self._pool.fetchrow(_SQL["read_run"], run_id)
        row = row or await self._pool.fetchrow(_SQL["run_holding_period"], account, period)
        if row is None:
            raise StaleWrite(f"the lock of {account} {period} was given back just now: try again")
        return run_from(row)

    async def read(self, run_id: str) -> Run:
        """Return a run. Raises RefusedToStart where there is none of that id."""
        run = await self.find(run_id)
        if run is None:
            raise _no_run(run_id)
        return run

    async def find(self, run_id: str) -> Run | None:
        """Return a run, or None where there is none of that id."""
        row = await self._pool.fetchrow(_SQL["read_run"], run_id)
        return None if row is None else run_from(row)

    async def newest(self, *, limit: int = 50) -> list[Run]:
        """Return up to `limit` runs, newest first."""
        return [run_from(row) for row in await self._pool.fetch(_SQL["list_runs"], limit)]

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

    async def counts(self, run_id: str) -> dict[str, int]:
        """Return lines by standing (I9: they add up to `selected`)."""
        rows = await self._pool.fetch(_SQL["run_counts"], run_id)
        return {row["standing"]: row["lines"] for row in rows if row["lines"]}

    async def due(self, run_id: str) -> DueSummary:
        """Return what is open and when it is due. Raises RefusedToStart where there is no such run."""
        row = await self._pool.fetchrow(_SQL["due_summary"], run_id)
        if row is None:
            raise _no_run(run_id)
        return DueSummary(**dict(row))

    async def follow_ups(self, run_id: str) -> FollowUpsDue:
        """Return how much the run waits for over days, and how much of it can be looked at now."""
        return await FollowUpLedger(self._pool).due(run_id)

    async def amounts(self, run_id: str) -> list[dict[str, Any]]:
        """Return money by currency and state."""
        return [dict(row) for row in await self._pool.fetch(_SQL["amounts_by_state"], run_id)]

    async def waiting(self, run_id: str) -> list[dict[str, Any]]:
        """Return why open charges wait, how many, and until when."""
        return [dict(row) for row in await self._pool.fetch(_SQL["waiting_reasons"], run_id)]


def _no_run(run_id: str) -> RefusedToStart:
    return RefusedToStart(f"there is no run {run_id!r} in the ledger: see `chargeonce run list`")


def run_from(row: asyncpg.Record) -> Run:
    """Return a row of `billing_runs` as a value."""
    return Run(**{name: row[name] for name in Run.__dataclass_fields__})
