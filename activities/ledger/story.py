"""Reads for one charge's story: rows as they are, nothing decided, nothing written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from activities.ledger import sql
from activities.ledger.database import Pool
from workflows.domain.errors import invariant

_SQL = sql.load("story.sql")
CANDIDATES_MAX = 20

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A charge that a person may have meant."""

    charge_id: str
    customer: str
    line: str
    period: str
    state: str
    run_id: str


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A row of a run's source that became no charge of that run. `detail` says more, where there is more."""

    run_id: str
    source_row: int
    customer: str | None
    line: str | None
    reason: str
    detail: str | None


@dataclass(frozen=True, slots=True)
class StoryRows:
    """Everything the ledger has about one charge."""

    charge: Fields
    keys: Sequence[Fields]
    attempts: Sequence[Fields]
    decisions: Sequence[Fields]
    takeovers: Sequence[Fields]


async def find_candidates(
    pool: Pool,
    *,
    beginning: str | None = None,
    customer: str | None = None,
    line: str | None = None,
    payment_intent: str | None = None,
    run_id: str | None = None,
) -> list[Candidate]:
    """Return up to 20 charges that fit everything given.

    `beginning` is the first hex digits of a charge_id; whatever else is in it would be a pattern.
    """
    rows = await pool.fetch(
        _SQL["find_charges"], beginning, customer, line, payment_intent, run_id, CANDIDATES_MAX
    )
    return [Candidate(*row.values()) for row in rows]


async def find_skipped(
    pool: Pool, *, customer: str, line: str | None = None, run_id: str | None = None
) -> list[SkippedRow]:
    """Return up to 20 rows of sources that name this customer and became no charge, newest run first."""
    rows = await pool.fetch(_SQL["find_skipped"], customer, line, run_id, CANDIDATES_MAX)
    return [SkippedRow(*row.values()) for row in rows]


async def read_story_rows(pool: Pool, charge_id: str) -> StoryRows:
    """Return all rows about a charge as of one moment."""
    async with (
        pool.acquire() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        charge = await connection.fetchrow(_SQL["story_charge"], charge_id)
        invariant(charge is not None, f"charge {charge_id} is in the ledger")
        parts = [
            [dict(row) for row in await connection.fetch(_SQL[name], charge_id)]
            for name in ("story_keys", "story_attempts", "story_decisions", "story_takeovers")
        ]
    return StoryRows(dict(charge or {}), *parts)
