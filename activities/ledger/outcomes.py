"""Why lines ended otherwise than paid: what an operator asks first when the counts are in."""

from collections.abc import Sequence
from typing import Any

from activities.ledger import sql
from activities.ledger.database import Pool

REASONS_MAX = 50
UNPAID_NAMED_MAX = 20

_SQL = sql.load("outcomes.sql")


async def reasons_of_outcomes(pool: Pool, run_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return `standing`, `reason` and `lines` of at most 50 reasons, the most frequent first."""
    return [dict(row) for row in await pool.fetch(_SQL["reasons_of_outcomes"], list(run_ids), REASONS_MAX)]


async def unpaid_lines(pool: Pool, run_id: str) -> tuple[list[dict[str, Any]], int]:
    """Return at most 20 lines that were to be charged and ended unpaid, and how many of them there are.

    Each has customer, line, currency, amount_minor, standing and reason; lines over nothing are left out.
    """
    rows = [dict(row) for row in await pool.fetch(_SQL["unpaid_lines"], run_id, UNPAID_NAMED_MAX)]
    count = rows[0]["of"] if rows else 0
    return [{name: value for name, value in row.items() if name != "of"} for row in rows], count
