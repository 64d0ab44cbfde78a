"""The ledger's clock, seen and moved from outside: for drills and demos, where the database allows it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg

from activities.ledger import sql
from activities.ledger.database import connect
from workflows.domain.errors import InvalidInput, RefusedToStart, invariant

_SQL = sql.load("runs.sql")


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The ledger's time: real time plus an offset, or standing still at `frozen_at`."""

    movable: bool
    offset_seconds: float
    frozen_at: datetime | None
    now: datetime


async def read_clock(database_url: str) -> ClockReading:
    """Return the clock as it stands. Raises RefusedToStart where the ledger can't be reached."""
    async with _connection(database_url) as connection:
        return await _read(connection)


async def advance_clock(owner_database_url: str, seconds: float) -> ClockReading:
    """Move the clock on by `seconds` (above 0), frozen or not, and return it as it stands then.

    Raises:
        InvalidInput: `seconds` is not above 0: ages must never shrink.
        RefusedToStart: This ledger's clock can't be moved (as in production), or can't be reached.
    """
    if seconds <= 0:
        raise InvalidInput(f"the clock only moves forwards, not by {seconds:g} s")
    async with _connection(owner_database_url) as connection, connection.transaction():
        before = await _read(connection)
        if not before.movable:
            raise RefusedToStart("the clock of this ledger can't be moved: only development stacks allow it")
        frozen_at = None if before.frozen_at is None else before.frozen_at + timedelta(seconds=seconds)
        await connection.fetchval(_SQL["move_clock"], before.offset_seconds + seconds, frozen_at)
        return await _read(connection)


async def _read(connection: "asyncpg.Connection[asyncpg.Record]") -> ClockReading:
    row = await connection.fetchrow(_SQL["read_clock"])
    invariant(row is not None, "a migrated ledger has one clock")
    return ClockReading(**dict(row or {}))


@asynccontextmanager
async def _connection(database_url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await connect(database_url)
    try:
        yield connection
    except asyncpg.UndefinedTableError as error:
        raise RefusedToStart("the database has no ledger yet: run `chargeonce migrate`") from error
    finally:
        await connection.close()
