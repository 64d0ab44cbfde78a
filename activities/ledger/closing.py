"""The two closes of a run, of its charging and its own: counts, report and event, each over one moment."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from activities.ledger import sql
from activities.ledger.database import Connection, Pool
from activities.ledger.rows import Row
from activities.ledger.runs import Run, run_from
from workflows.domain.errors import RefusedToStart, StaleWrite

_SQL = sql.load("closing.sql")
_RUNS = sql.load("runs.sql")
_EVENTS = sql.load("control.sql")["run_events"]
_WAITING = sql.load("follow_ups.sql")["follow_up_summary"]
CLOSE_SECONDS_MAX = 600.0  # counting a million lines takes seconds


@dataclass(frozen=True, slots=True)
class CloseFacts:
    """What the ledger knows of a run at the moment of its close."""

    run: Mapping[str, Any]
    counts: Mapping[str, int]
    amounts: Sequence[Mapping[str, Any]]
    caps: Sequence[Mapping[str, Any]]
    events: Sequence[Mapping[str, Any]]
    follow_ups: Sequence[Mapping[str, Any]] = ()

    @property
    def now(self) -> datetime:
        """The moment, by the ledger's clock."""
        moment: datetime = self.run["now"]
        return moment


async def close_charging_with_report(
    pool: Pool, run_id: str, assemble: Callable[[CloseFacts], Mapping[str, Any]]
) -> bool:
    """Close a run's charging with the report that `assemble` makes of the ledger's facts.

    Return whether it is closed: not where nothing is waited for, or where the run is being canceled; then the
    whole run is to be closed.

    Raises:
        RefusedToStart: There is no such run.
    """
    async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
        row = await _lock(connection, run_id)
        if row["phase"] == "retrying":
            return True
        report = assemble(await _read_facts(connection, run_id, dict(row)))
        closed = await connection.fetchval(
            _SQL["close_charging"], run_id, dict(report), timeout=CLOSE_SECONDS_MAX
        )
        return closed is not None


async def close_with_report(
    pool: Pool, run_id: str, assemble: Callable[[CloseFacts], Mapping[str, Any]]
) -> Run:
    """Close a run with the report that `assemble` makes of the ledger's facts, and return it.

    A run that is closed already is returned as it is. The transaction sees one moment, so the report's counts
    are those that are frozen; whoever changes the run meanwhile makes this fail, to be tried again.

    Raises:
        StaleWrite: Some charge is not settled after all.
        RefusedToStart: There is no such run.
    """
    async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
        row = await _lock(connection, run_id)
        if row["phase"] != "closed":
            report = assemble(await _read_facts(connection, run_id, dict(row)))
            await connection.fetchrow(_SQL["write_report"], run_id, dict(report))
        closed = await connection.fetchrow(_RUNS["close_run"], run_id, timeout=CLOSE_SECONDS_MAX)
        closed = closed or await connection.fetchrow(_RUNS["read_run"], run_id)
        if closed is None or closed["phase"] != "closed":
            raise StaleWrite(f"run {run_id} still has open charges, or waits for something")
        return run_from(closed)


async def _lock(connection: Connection, run_id: str) -> Row:
    row = await connection.fetchrow(_SQL["lock_run_to_close"], run_id)
    if row is None:
        raise RefusedToStart(f"there is no run {run_id!r} in the ledger: see `chargeonce run list`")
    return row


async def _read_facts(connection: Connection, run_id: str, run: Mapping[str, Any]) -> CloseFacts:
    async def rows(statement: str) -> list[dict[str, Any]]:
        return [dict(row) for row in await connection.fetch(statement, run_id, timeout=CLOSE_SECONDS_MAX)]

    return CloseFacts(
        run=run,
        counts={row["standing"]: row["lines"] for row in await rows(_RUNS["run_counts"]) if row["lines"]},
        amounts=await rows(_SQL["amounts_to_close"]),
        caps=await rows(_SQL["caps_to_close"]),
        events=await rows(_EVENTS),
        follow_ups=await rows(_WAITING),
    )
