"""Why lines ended otherwise than paid: what an operator asks first when the counts are in."""

from typing import Any

from activities.ledger import sql
from activities.ledger.database import Pool

REASONS_MAX = 50

_SQL = sql.load("outcomes.sql")


async def reasons_of_outcomes(pool: Pool, run_id: str) -> list[dict[str, Any]]:
    """Return `standing`, `reason` and `lines` of at most 50 reasons, the most frequent first."""
    return [dict(row) for row in await pool.fetch(_SQL["reasons_of_outcomes"], run_id, REASONS_MAX)]
