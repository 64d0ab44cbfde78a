"""A query on somebody's Postgres, read in batches: the one place where a database other than ours is asked.

It is asked as gently as can be: one read-only transaction with one snapshot, a cursor on the server, a time
limit for each statement, and nothing prepared is left behind (a pooler may stand in between). Where the
database is, and its password, never show: what a driver says about a connection may repeat them.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import asyncpg

from activities.ledger import sql
from workflows.domain.errors import ChargeonceError, InvalidInput, RefusedToStart

if TYPE_CHECKING:
    from asyncpg.cursor import Cursor

CONNECT_SECONDS = 15.0
STATEMENT_SECONDS = 600.0
CLOSE_SECONDS = 5.0
_MESSAGE_CHARACTERS_MAX = 160
_SQL = sql.load("source_query.sql")

# Not the query's fault and not its author's: the server is going, full, or busy elsewhere.
_PASSING_CLASSES = ("08", "40", "53", "57P", "58")


@dataclass(frozen=True, slots=True)
class QueryColumn:
    """A column of the result: its name as the query gives it, and the name of its type in Postgres."""

    name: str
    type_name: str


class OpenQuery:
    """A query under way, its rows still at the server."""

    def __init__(
        self, columns: tuple[QueryColumn, ...], cursor: "Cursor[asyncpg.Record]", source: str
    ) -> None:
        self.columns = columns
        self._cursor = cursor
        self._source = source
        self._rows_read = 0

    async def fetch(self, rows_max: int) -> list[tuple[object, ...]]:
        """Return the next rows, `rows_max` of them but at the end; none when all have been read.

        Raises:
            InvalidInput: The query failed, and after which row.
            RefusedToStart: The connection was lost.
        """
        with _told(self._source, f"after row {self._rows_read}"):
            records = await self._cursor.fetch(rows_max)
        self._rows_read += len(records)
        return [tuple(record) for record in records]


@asynccontextmanager
async def open_query(database_url: str, query: str, *, source: str) -> AsyncIterator[OpenQuery]:
    """Run one statement that returns rows, and close the connection whatever happens.

    `source` is what errors call the database.

    Raises:
        InvalidInput: The query is no single statement that returns rows, takes parameters, writes, or fails.
        RefusedToStart: The database can't be reached.
    """
    connection = await _connect(database_url, source)
    try:
        with _told(source, "at its start"):
            for name in ("json", "jsonb"):
                await connection.set_type_codec(
                    name, schema="pg_catalog", encoder=json.dumps, decoder=_decode_json
                )
            transaction = connection.transaction(isolation="repeatable_read", readonly=True)
            await transaction.start()
            await connection.execute(_SQL["limit_source_statements"], str(int(STATEMENT_SECONDS * 1000)))
            statement = await connection.prepare(query)
            columns = tuple(QueryColumn(part.name, part.type.name) for part in statement.get_attributes())
            if statement.get_parameters():
                raise InvalidInput(f"the query of source {source} takes parameters, and there are none")
            if not columns:
                raise InvalidInput(f"the query of source {source} returns no rows: it must be a SELECT")
            cursor = await statement.cursor()
        yield OpenQuery(columns, cursor, source)
    finally:
        # A reading that was given up has rows under way: there is nothing to wait for.
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            await connection.close(timeout=CLOSE_SECONDS)


async def _connect(database_url: str, source: str) -> "asyncpg.Connection[asyncpg.Record]":
    try:
        return await asyncpg.connect(
            database_url,
            timeout=CONNECT_SECONDS,
            command_timeout=STATEMENT_SECONDS + CONNECT_SECONDS,
            statement_cache_size=0,
        )
    except (ValueError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        refusal = f"the URL of source {source} can't be right ({type(error).__name__})"
    except (OSError, asyncpg.PostgresError, TimeoutError) as error:
        refusal = f"the database of source {source} can't be reached ({type(error).__name__})"
    # Outside of the except, so that what the driver said is not kept as this error's context either.
    raise RefusedToStart(refusal)


@contextmanager
def _told(source: str, where: str) -> Iterator[None]:
    failure: ChargeonceError
    try:
        yield
        return
    except asyncpg.PostgresError as error:
        if str(error.sqlstate).startswith(_PASSING_CLASSES):
            failure = RefusedToStart(f"the database of source {source} gave up ({type(error).__name__})")
        else:
            said = _one_line(str(error))
            failure = InvalidInput(f"the query of source {source} failed {where}: {said}")
    except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        failure = RefusedToStart(f"the database of source {source} was lost ({type(error).__name__})")
    except (ValueError, ArithmeticError) as error:
        kind = type(error).__name__
        failure = InvalidInput(f"the query of source {source} gave what can't be read {where} ({kind})")
    raise failure


def _one_line(message: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in message)
    return printable[:_MESSAGE_CHARACTERS_MAX]


def _decode_json(text: str) -> object:
    return json.loads(text, parse_float=Decimal, parse_constant=Decimal)
