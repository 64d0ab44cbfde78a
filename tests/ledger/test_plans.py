import re

import asyncpg
import pytest

from activities.ledger import sql
from activities.ledger.database import Pool

SEND_PATH = (
    "intend_first", "intend_again", "record_answers", "settle_charge", "defer_charge", "read_key",
    "read_charges", "cancel_intended",
)  # fmt: skip
WHOLE_TABLE = ("Seq Scan on", "hashed SubPlan", "charges_by_slice")


@pytest.mark.parametrize("name", SEND_PATH)
async def test_send_path_looks_rows_up_even_where_plans_are_made_on_an_empty_ledger(
    pool: Pool, name: str
) -> None:
    """No statement is planned to read a whole table or run: such a plan outlives the empty table."""
    statement = sql.load("charges.sql")[name]
    parameters = max(int(number) for number in re.findall(r"\$(\d+)", statement))
    async with pool.acquire() as connection:
        plan = await _explain(connection, statement, parameters)
    lines = [line.strip() for line in plan if any(sign in line for sign in WHOLE_TABLE)]
    assert not lines, lines


async def _explain(
    connection: "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]", statement: str, parameters: int
) -> list[str]:
    async with connection.transaction():
        await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        await connection.execute(f"PREPARE looked_at AS {statement}")
        nulls = ", ".join(["NULL"] * parameters)
        rows = await connection.fetch(f"EXPLAIN EXECUTE looked_at ({nulls})")
        await connection.execute("DEALLOCATE looked_at")
    return [row[0] for row in rows]
