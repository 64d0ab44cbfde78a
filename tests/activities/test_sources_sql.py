"""Charges from a query on a real Postgres: read gently, told exactly, not a word about where it is."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from activities.ledger import source_query
from activities.sources import Source, SourceLine
from activities.sources.opening import open_source
from deploy.postgres import PostgresServer
from tests.activities.sources_at_hand import DATABASE_VARIABLE, lines_of, opened, problems_of, read
from workflows.domain.errors import ChargeonceError, InvalidInput, RefusedToStart

Ask = Callable[[str], Source]
REST = "'usd' AS currency, 1 AS amount"


@pytest.fixture
def ask(tmp_path: Path, postgres_server: PostgresServer) -> Ask:
    """Return a source for the text of a query."""

    def write(query: str) -> Source:
        path = tmp_path / "due.sql"
        path.write_text(query)
        return opened(f"sql:dues:{path}", postgres_server.owner_url)

    return write


@pytest.fixture
async def watcher(postgres_server: PostgresServer) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection that sees what others do."""
    connection = await asyncpg.connect(postgres_server.owner_url)
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_query_is_read_in_batches_with_record_numbers(ask: Ask) -> None:
    """Rows come through a cursor, in the order of the query, numbered from 1."""
    source = ask(
        "-- What is due in March.\n"
        "SELECT 'cus_' || n AS customer, 'eur' AS currency, (n * 1.5)::numeric(12, 4) AS amount,\n"
        "       CASE WHEN n = 3 THEN 'a/b' END AS payment_method, 'March' AS \"Description\"\n"
        "  FROM generate_series(1, 10) AS n ORDER BY n;\n"
    )
    async with aclosing(source.batches(4)) as batches:
        sizes = [len(batch) async for batch in batches]
    assert sizes == [4, 4, 2]
    found = await read(source)
    assert lines_of(found)[9] == SourceLine(10, "cus_10", "base", "eur", 1500, None, "March")
    assert [value.row for value in found] == list(range(1, 11))


async def test_nothing_can_be_written(ask: Ask, watcher: "asyncpg.Connection[asyncpg.Record]") -> None:
    """The transaction is read-only, and no second statement fits into it."""
    await watcher.execute("CREATE TABLE touched (n int)")
    attempts = {
        f"INSERT INTO touched VALUES (1) RETURNING 'c' AS customer, {REST}": "read-only",
        "SELECT 1; DELETE FROM touched": "multiple commands",
        "DELETE FROM touched": "returns no rows",
        "COMMIT": "returns no rows",
        f"SELECT set_config('transaction_read_only', 'off', true) AS customer, {REST}": "read-write mode",
    }
    for query, said in attempts.items():
        with pytest.raises(InvalidInput, match=said):
            await read(ask(query))
    assert await watcher.fetchval("SELECT count(*) FROM touched") == 0
    await watcher.execute("DROP TABLE touched")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELEC 1", 'failed at its start: syntax error at or near "SELEC"'),
        ("", "returns no rows: it must be a SELECT"),
        ("SELECT * FROM no_such_table", 'failed at its start: relation "no_such_table" does not exist'),
        ("SELECT $1::text AS customer", "takes parameters"),
        (
            "SELECT 'c' AS customer, 'usd' AS currency, 9 / (7 - n) AS amount FROM generate_series(1, 9) n",
            "failed after row 5: division by zero",
        ),
    ],
)
async def test_a_query_that_fails_is_invalid_input(ask: Ask, query: str, said: str) -> None:
    """The reason says what Postgres says, in one line, and how far the reading got."""
    with pytest.raises(InvalidInput) as raised:
        await read(ask(query), rows_max=5)
    assert said in raised.value.reason
    assert raised.value.reason.startswith("the query of source dues ")


async def test_a_statement_that_takes_too_long_is_ended(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server itself ends it, and the reason says so."""
    monkeypatch.setattr(source_query, "STATEMENT_SECONDS", 0.2)
    with pytest.raises(InvalidInput, match="statement timeout"):
        await read(ask("SELECT pg_sleep(60)::text AS customer, 'usd' AS currency, 1 AS amount"))


async def test_a_reading_that_is_given_up_closes_its_connection(
    ask: Ask, watcher: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """One connection for each reading, and none after it, read to the end or not."""
    query = (
        "SELECT 'c' || n AS customer, 'usd' AS currency, 1 AS amount FROM generate_series(1, 1000000) AS n"
    )
    mine = (
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%generate_series(1, 1000000)%' AND pid <> $1"
    )
    async with aclosing(ask(query).batches(10)) as batches:
        assert len(await anext(batches)) == 10
        assert await watcher.fetchval(mine, watcher.get_server_pid()) == 1
    async with asyncio.timeout(10):
        while await watcher.fetchval(mine, watcher.get_server_pid()):  # noqa: ASYNC110 - the server has no event
            await asyncio.sleep(0.01)


async def test_a_connection_that_is_lost_may_be_there_later(
    ask: Ask, watcher: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """A server that ends the session is nobody's fault: the reading is refused, and can be tried again."""
    query = "SELECT 'c' || n AS customer, 'usd' AS currency, 1 AS amount FROM generate_series(1, 500000) AS n"
    async with aclosing(ask(query).batches(10)) as batches:
        await anext(batches)
        await watcher.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE query LIKE '%generate_series(1, 500000)%' AND pid <> pg_backend_pid()"
        )
        with pytest.raises(RefusedToStart, match="the database of source dues"):
            async for _ in batches:
                pass


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://someone:s3cret-word@127.0.0.1:1/db",
        "postgresql://someone:s3cret-word@127.0.0.1:s3cret-word/db",
        "postgresql://someone:s3cret-word@no-such-host.invalid/db",
        "mysql://someone:s3cret-word@127.0.0.1/db",
        "s3cret-word",
        "",
    ],
)
async def test_no_error_tells_the_url(tmp_path: Path, url: str) -> None:
    """Refused, misspelt, not found, not set: the reason names the source, and neither host nor password."""
    path = tmp_path / "due.sql"
    path.write_text("SELECT 1")
    source = open_source(f"sql:dues:{path}", {DATABASE_VARIABLE: url})
    with pytest.raises(RefusedToStart) as raised:
        await read(source)
    assert "dues" in str(raised.value)
    assert_silent(raised.value, "s3cret-word", "127.0.0.1", "someone")
    assert "s3cret-word" not in repr(source) + source.spec + await source.fingerprint()


async def test_a_wrong_password_is_not_told(
    ask: Ask, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    """What Postgres says about a login names the user: no error says it, nor its cause or context."""
    url = urlsplit(postgres_server.owner_url)
    wrong = url._replace(netloc=f"{url.username}:s3cret-word@{url.hostname}:{url.port}").geturl()
    source = open_source(ask("SELECT 1").spec, {DATABASE_VARIABLE: wrong})
    with pytest.raises(RefusedToStart, match=r"can't be reached \(InvalidPasswordError\)") as raised:
        await read(source)
    assert_silent(raised.value, "s3cret-word", str(url.username))


def assert_silent(error: ChargeonceError, *secrets: str) -> None:
    """Fail where an error, or one that it carries with it, holds a secret."""
    carried: BaseException | None = error
    while carried is not None:
        assert not any(secret in f"{carried} {carried!r}" for secret in secrets)
        assert carried.__cause__ is None
        carried = carried.__context__


async def test_the_fingerprint_is_of_the_text_and_the_name(tmp_path: Path) -> None:
    """The same query of another database is another source; capitals of its name are not."""
    path = tmp_path / "due.sql"
    path.write_text("SELECT 1")
    first = await open_source(f"sql:dues:{path}", {}).fingerprint()
    assert first == await open_source(f"sql:DUES:{path}", {}).fingerprint()
    assert first != await open_source(f"sql:others:{path}", {}).fingerprint()
    path.write_text("SELECT 2")
    assert first != await open_source(f"sql:dues:{path}", {}).fingerprint()


async def test_columns_of_the_result_are_judged_before_any_row(ask: Ask) -> None:
    """Unknown, doubled and missing columns are one problem of row 0."""
    (problem,) = problems_of(await read(ask("SELECT 1 AS amount, 2 AS amount, 3 AS note")))
    assert (problem.row, problem.skippable) == (0, False)
    assert problem.reason == "columns unknown: 'note'; duplicated: amount; missing: customer, currency"
