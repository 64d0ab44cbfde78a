"""What became of a plan's lines, in the ledger's words."""

import asyncpg

from activities.ledger import sql
from activities.ledger.database import Pool

STATEMENT_SECONDS_MAX = 1_800.0  # a million frozen parameters are read once
REASONS_NAMED_MAX = 20

_SQL = sql.load("plan_outcomes.sql")


async def frozen_totals(pool: Pool, run_id: str) -> list[asyncpg.Record]:
    """Return currency, lines, amount_minor and cap_minor as they were frozen with the plan."""
    rows: list[asyncpg.Record] = await pool.fetch(_SQL["frozen_totals"], run_id)
    return rows


async def planned_outcomes(pool: Pool, run_id: str) -> list[asyncpg.Record]:
    """Return currency, standing, reason, lines and amount_minor of the lines that were to be charged."""
    rows: list[asyncpg.Record] = await pool.fetch(
        _SQL["planned_outcomes"], run_id, REASONS_NAMED_MAX, timeout=STATEMENT_SECONDS_MAX
    )
    return rows


async def count_other_amounts(pool: Pool, run_id: str) -> int:
    """Return how many charges moved money by frozen parameters that differ from the ledger's row: 0."""
    return int(await pool.fetchval(_SQL["count_other_amounts"], run_id, timeout=STATEMENT_SECONDS_MAX))
