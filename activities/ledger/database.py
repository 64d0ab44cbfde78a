"""The pool: every connection of the ledger is opened here, and checked for what durability rests on."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from workflows.domain.errors import RefusedToStart, invariant

# Generic in asyncpg's stubs only, so quoted: the classes themselves can't be subscripted.
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"

# What PostgreSQL says again however often it is asked: values that it can't keep, a rule of the schema, a
# statement that may not be. Everything else (connections, locks, shutdowns) may pass.
PERMANENT = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.SyntaxOrAccessError,
    asyncpg.PLPGSQLError,
)
STATEMENT_TIMEOUT_SECONDS = 60.0
SERVER_VERSION_MIN = 180_000


async def connect(database_url: str) -> "asyncpg.Connection[asyncpg.Record]":
    """Return one connection, for whoever needs no pool. Raises RefusedToStart where none can be had."""
    with _reachable():
        return await asyncpg.connect(database_url)


@contextmanager
def _reachable() -> Iterator[None]:
    try:
        yield
    except ValueError:  # asyncpg repeats what it can't read, which may be part of the password
        raise RefusedToStart("the URL of the ledger's database can't be right") from None
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise RefusedToStart(f"the ledger's database can't be reached: {error}") from error


@contextmanager
def refused_without_rights(advice: str) -> Iterator[None]:
    """Turn what PostgreSQL does not allow this role into RefusedToStart, with what to do about it."""
    try:
        yield
    except asyncpg.InsufficientPrivilegeError as error:
        raise RefusedToStart(f"this role may not do that in the ledger ({error}): {advice}") from error


def refuse_older_server(version_number: int) -> None:
    """Raise RefusedToStart below PostgreSQL 18: answers are recorded with `RETURNING old.*`.

    Met at the first answer instead, the error would come after money has moved.
    """
    if version_number < SERVER_VERSION_MIN:
        major, needed = version_number // 10_000, SERVER_VERSION_MIN // 10_000
        raise RefusedToStart(f"the ledger needs PostgreSQL {needed} or newer, and this is {major}")


async def _prepare(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
    # I1: an intent that a power cut can take back was never committed.
    durable = await connection.fetchval("SHOW synchronous_commit")
    invariant(durable == "on", f"synchronous_commit is {durable}, but must be on")
    # A role that only reads may not write this down, and a schema of before does not know it.
    with suppress(asyncpg.InsufficientPrivilegeError, asyncpg.UndefinedFunctionError):
        await connection.execute("SELECT notice_restore()")


async def _leave_session_as_it_is(_connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Nobody here sets, listens or locks in a session: the default would ask the server to undo it all.

    That is a round trip for each use of the pool. An open transaction is still rolled back by asyncpg.
    """


@asynccontextmanager
async def open_pool(
    database_url: str, *, connections: int = 8, destinations: Sequence[str] = ()
) -> AsyncIterator[Pool]:
    """Yield a pool of at most `connections` connections to the ledger.

    `destinations` are the names of those whom this process can notify: what it does to a run is announced to
    them by the database itself (migration 0005). Nothing is announced where there are none.

    Raises:
        RefusedToStart: The database can't be reached, is too old, or has no schema yet.
    """
    with _reachable():
        pool = await asyncpg.create_pool(
            database_url,
            min_size=1,
            max_size=connections,
            init=_prepare,
            reset=_leave_session_as_it_is,
            command_timeout=STATEMENT_TIMEOUT_SECONDS,
            server_settings={
                "synchronous_commit": "on",
                "application_name": "chargeonce",
                "enable_seqscan": "off",  # why: sql/charges.sql
                "chargeonce.destinations": ",".join(destinations),
            },
        )
    try:
        refuse_older_server(int(await pool.fetchval("SHOW server_version_num")))
        if await pool.fetchval("SELECT to_regclass('billing_runs')") is None:
            raise RefusedToStart("the database has no ledger yet: run `chargeonce migrate`")
        yield pool
    finally:
        await pool.close()
