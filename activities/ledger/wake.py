"""Being woken by the database when there is something new in the inbox.

A wake-up is a hint and may be lost with its connection: whoever waits looks by itself every now and then.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from activities.ledger.database import connect

INBOX_CHANNEL = "chargeonce_inbox"


class Wake:
    """Set when something is new; `lost` once nothing can wake any more."""

    def __init__(self) -> None:
        self._new = asyncio.Event()
        self.lost = False

    def set(self) -> None:
        """Say that there is something new."""
        self._new.set()

    def lose(self) -> None:
        """Say that nothing will be heard any more."""
        self.lost = True
        self._new.set()

    async def wait(self, seconds: float) -> None:
        """Return when something is new, or after so many seconds of real time."""
        try:
            async with asyncio.timeout(seconds):
                await self._new.wait()
        except TimeoutError:
            return
        self._new.clear()


@asynccontextmanager
async def listening(database_url: str, channel: str = INBOX_CHANNEL) -> AsyncIterator[Wake]:
    """Yield what is set by each notification of a channel, over a connection of its own.

    Raises:
        RefusedToStart: The database can't be reached.
    """
    wake = Wake()
    connection = await connect(database_url)
    connection.add_termination_listener(lambda _: wake.lose())
    try:
        await connection.add_listener(channel, lambda *_: wake.set())
        yield wake
    finally:
        if not connection.is_closed():
            await _close(connection)


async def _close(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    try:
        await connection.close(timeout=5)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
        connection.terminate()
