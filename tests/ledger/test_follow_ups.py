import asyncpg

from deploy.postgres import Database
from workflows.domain.follow_up import WAITS_ON, Kind


async def test_ledger_and_domain_wait_on_the_same_states(database: Database) -> None:
    """Which state a follow-up waits on is said twice, in SQL and in Python, and the same."""
    connection = await asyncpg.connect(database.app_url)
    try:
        states = {kind: await connection.fetchval("SELECT follow_up_state($1)", kind) for kind in Kind}
    finally:
        await connection.close()
    assert states == dict(WAITS_ON)
