import asyncio

import asyncpg
import pytest

import activities.ledger.migrate as migrate_module
from activities.ledger.database import Pool, connect, open_pool, refuse_older_server
from activities.ledger.migrate import Migration, known_migrations, migrate
from deploy.postgres import APP_ROLE, Database, PostgresServer
from tests.ledger.planting import run_as_owner
from workflows.domain.errors import InvalidInput, RefusedToStart


async def test_an_empty_database_gets_every_migration_once(postgres_server: PostgresServer) -> None:
    """Two migrators at the same instant apply each file once, and a third has nothing to do."""
    empty = await postgres_server.create_database("migrations_twice")
    try:
        both = await asyncio.gather(migrate(empty.owner_url), migrate(empty.owner_url))
        assert sorted(both, key=len) == [[], [known.name for known in known_migrations()]]
        assert await migrate(empty.owner_url) == []
    finally:
        await postgres_server.drop_database("migrations_twice")


async def test_a_database_without_a_ledger_is_refused(postgres_server: PostgresServer) -> None:
    """A worker that meets an empty database says which command makes the ledger."""
    empty = await postgres_server.create_database("migrations_none")
    try:
        with pytest.raises(RefusedToStart, match="chargeonce migrate"):
            async with open_pool(empty.owner_url, connections=1):
                pass
    finally:
        await postgres_server.drop_database("migrations_none")


def test_an_older_server_is_refused_before_anything_is_sent() -> None:
    """The first answer could not be recorded there, and by then money may have moved."""
    refuse_older_server(180_000)
    with pytest.raises(RefusedToStart, match="PostgreSQL 18 or newer, and this is 17"):
        refuse_older_server(170_004)


@pytest.mark.parametrize("url", ["postgresql://owner:pass/word@db/ledger", "mysql://owner:pass@db/ledger"])
async def test_a_url_that_can_not_be_right_is_not_repeated(url: str) -> None:
    """The message of a broken database URL holds no part of it: it may be the password."""
    with pytest.raises(RefusedToStart) as refused:
        await connect(url)
    assert "pass" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_migrations_are_numbered_without_gaps() -> None:
    """Names are NNNN_pre_... or NNNN_post_..., counted from 1, so their order is never a question."""
    names = [known.name for known in known_migrations()]
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    assert all(name[4:].startswith(("_pre_", "_post_")) for name in names)


async def test_an_edited_migration_is_refused(database: Database) -> None:
    """A file that changed after it was applied stops the migration."""
    await run_as_owner(database, "UPDATE schema_migrations SET sha256 = 'another'")
    with pytest.raises(RefusedToStart, match="edited"):
        await migrate(database.owner_url)


async def test_a_newer_database_is_refused(database: Database) -> None:
    """An older version of the program does not touch a newer schema."""
    await run_as_owner(database, "INSERT INTO schema_migrations VALUES ('9999_pre_later.sql', 'ab')")
    with pytest.raises(RefusedToStart, match="9999_pre_later"):
        await migrate(database.owner_url)


async def test_a_failing_migration_leaves_nothing_behind(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is one transaction: half of it is never there."""
    broken = Migration("0999_pre_broken.sql", "CREATE TABLE half (a int); SELECT nonsense")
    shipped = known_migrations()
    monkeypatch.setattr(migrate_module, "known_migrations", lambda: [*shipped, broken])
    with pytest.raises(asyncpg.UndefinedColumnError):
        await migrate(database.owner_url)
    connection = await asyncpg.connect(database.owner_url)
    try:
        assert await connection.fetchval("SELECT to_regclass('half')") is None
    finally:
        await connection.close()


async def test_a_role_name_is_not_a_place_for_sql(database: Database) -> None:
    """The application's role goes into the grants as a name or not at all."""
    with pytest.raises(InvalidInput):
        await migrate(database.owner_url, app_role='x"; DROP TABLE charges; --')


async def test_workers_can_not_unwrite_history_or_move_time(pool: Pool) -> None:
    """The application's role has no right to delete what was intended, nor to touch rules and clock."""
    for statement in (
        "DELETE FROM charges",
        "DELETE FROM keys",
        "DELETE FROM attempts",
        "DELETE FROM decisions",
        "DELETE FROM billing_runs",
        "DELETE FROM skipped_rows",
        "UPDATE decisions SET reason = ''",
        "UPDATE charge_transitions SET after = before",
        "UPDATE ledger_clock SET offset_seconds = 90000",
        "SELECT move_ledger_clock(90000, NULL)",
        "TRUNCATE attempts",
        "DROP TABLE attempts",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await pool.execute(statement)


async def test_a_production_clock_can_not_be_moved_by_its_owner(postgres_server: PostgresServer) -> None:
    """Where the first migration said so, move_ledger_clock refuses everybody."""
    production = await postgres_server.create_database("migrations_clock")
    try:
        await migrate(production.owner_url, app_role=APP_ROLE)
        await migrate(production.owner_url, app_role=APP_ROLE, movable_clock=True)
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="can not be moved"):
            await run_as_owner(production, "SELECT move_ledger_clock(90000, NULL)")
    finally:
        await postgres_server.drop_database("migrations_clock")


async def test_every_commit_is_durable_whatever_the_server_says(database: Database) -> None:
    """A database that switches synchronous_commit off does not reach our connections (I1)."""
    await run_as_owner(database, f'ALTER DATABASE "{database.name}" SET synchronous_commit = off')
    async with open_pool(database.app_url, connections=1) as opened:
        assert await opened.fetchval("SHOW synchronous_commit") == "on"
