"""What each role of the database can not do, shown by trying it."""

import asyncpg
import pytest

from activities.ledger.database import connect, open_pool
from activities.verify import verify_account
from deploy.postgres import Database
from tests.activities.books import ACCOUNT, open_books

WRITES = (
    "UPDATE charges SET state = 'succeeded'",
    "INSERT INTO decisions (charge_id, at, decision, reason) VALUES ('x', now(), 'x', 'x')",
    "DELETE FROM attempts",
    "UPDATE keys SET parameters = '{}'",
    "TRUNCATE decisions",
    "UPDATE vault_keys SET revoked_at = NULL",
    "CREATE TABLE mine (x integer)",
    "SELECT move_ledger_clock(0, NULL)",
)


async def refuse(url: str, statements: tuple[str, ...]) -> None:
    """Try each statement, and see it refused for lack of rights."""
    connection = await connect(url)
    try:
        for statement in statements:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)
    finally:
        await connection.close()


async def test_an_auditor_reads_everything_and_changes_nothing(database: Database) -> None:
    """A comparison of the books needs no right to write, and the role has none."""
    await refuse(database.auditor_url, (*WRITES, "CREATE TEMPORARY TABLE mine (x integer)"))
    async with open_books(database) as books:
        await books.open_run("closed")
        await books.owe("cus_1", "succeeded", payment_intent=await books.pay("cus_1"))
        async with open_pool(database.auditor_url, connections=2) as pool:
            report = await verify_account(pool, books.gateway, ACCOUNT)
    assert (report.clean, report.lines_paid) == (True, 1), report.as_text()


async def test_the_receiver_keeps_events_and_reads_nobody(database: Database) -> None:
    """Whoever breaks into the process that the internet talks to sees no charge and changes none."""
    await refuse(
        database.web_url,
        (
            *WRITES,
            "SELECT FROM charges",
            "SELECT FROM vault_keys",
            "UPDATE inbox_events SET state = 'done'",
            "DELETE FROM inbox_events",
        ),
    )


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM attempts",
        "DELETE FROM decisions",
        "UPDATE decisions SET reason = 'x'",
        "UPDATE run_events SET reason = 'x'",
        "DELETE FROM charges",
        "UPDATE vault_calls SET path = NULL",
    ],
)
async def test_a_worker_can_not_rewrite_the_journal(database: Database, statement: str) -> None:
    """What was decided and sent stays as it was written."""
    await refuse(database.app_url, (statement,))


async def test_the_proxy_can_not_mark_a_charge_paid(database: Database) -> None:
    """It counts money and can charge nobody, nor read what is owed."""
    await refuse(database.proxy_url, (*WRITES, "SELECT FROM charges"))
