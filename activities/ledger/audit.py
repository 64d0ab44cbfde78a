"""The ledger as an auditor reads it: own queries and values, nothing that the send path reads or decides."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from activities.ledger import sql
from activities.ledger.database import Pool
from workflows.domain.errors import RefusedToStart

_SQL = sql.load("audit.sql")
_ROWS_PER_FETCH = 1_000
_IDENTITIES_PER_QUERY = 5_000


@dataclass(frozen=True, slots=True)
class AuditedRun:
    """A run's own word about itself.

    `selected` is None before planning; `accounted` counts the rows that must add up to it (I9).
    """

    run_id: str
    account: str
    period: str
    phase: str
    selected: int | None
    accounted: int
    earliest_at: datetime


@dataclass(frozen=True, slots=True)
class AuditedLine:
    """What the ledger says about one charge. `returned_minor` went back of it, or is on its way back."""

    charge_id: str
    customer: str
    line: str
    currency: str
    amount_minor: int
    state: str
    payment_intent: str | None
    run_id: str
    returned_minor: int = 0


async def read_accounts(pool: Pool, *, since: datetime | None = None) -> list[str]:
    """Return the accounts that have runs which were locked at `since` or later."""
    return [row["account"] for row in await pool.fetch(_SQL["audited_accounts"], since)]


async def read_runs_in_order(pool: Pool, account: str, *, since: datetime | None = None) -> list[str]:
    """Return the ids of an account's runs that were locked at `since` or later; oldest first."""
    return [row["run_id"] for row in await pool.fetch(_SQL["runs_in_order"], account, since)]


async def read_audited_runs(pool: Pool, run_ids: Sequence[str]) -> dict[str, AuditedRun]:
    """Return runs by their ids, as they are now."""
    rows = await pool.fetch(_SQL["audited_runs"], list(run_ids))
    return {row["run_id"]: AuditedRun(**dict(row)) for row in rows}


async def read_audited_run(pool: Pool, run_id: str) -> AuditedRun:
    """Return the run. Raises RefusedToStart where the ledger has none of that id."""
    runs = await read_audited_runs(pool, [run_id])
    if run_id not in runs:
        raise RefusedToStart(f"there is no run {run_id!r} in the ledger: see `chargeonce run list`")
    return runs[run_id]


async def stream_audited_lines(pool: Pool, run_ids: Sequence[str]) -> AsyncIterator[AuditedLine]:
    """Yield every charge of some runs as of one moment, through a server-side cursor."""
    async with (
        pool.acquire() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        async for row in connection.cursor(_SQL["audited_lines"], list(run_ids), prefetch=_ROWS_PER_FETCH):
            yield AuditedLine(*row.values())


async def read_audited_lines(
    pool: Pool, run_ids: Sequence[str], charge_ids: Sequence[str]
) -> list[AuditedLine]:
    """Return those of `charge_ids` that are of these runs, as they are now."""
    lines: list[AuditedLine] = []
    for start in range(0, len(charge_ids), _IDENTITIES_PER_QUERY):
        batch = list(charge_ids[start : start + _IDENTITIES_PER_QUERY])
        rows = await pool.fetch(_SQL["audited_lines_again"], list(run_ids), batch)
        lines += [AuditedLine(*row.values()) for row in rows]
    return lines


async def find_known_identities(pool: Pool, charge_ids: Sequence[str]) -> set[str]:
    """Return those of `charge_ids` that are in the ledger, in whatever run."""
    known: set[str] = set()
    for start in range(0, len(charge_ids), _IDENTITIES_PER_QUERY):
        batch = list(charge_ids[start : start + _IDENTITIES_PER_QUERY])
        known.update(row["charge_id"] for row in await pool.fetch(_SQL["known_identities"], batch))
    return known


async def read_charged_customers(pool: Pool, run_id: str, *, limit: int) -> list[str]:
    """Return up to `limit` customers of charges that anything was ever sent for."""
    return [row["customer"] for row in await pool.fetch(_SQL["charged_customers"], run_id, limit)]
