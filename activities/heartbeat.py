"""Heartbeats while an activity works."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from temporalio import activity

HEARTBEAT_SECONDS = 0.4  # the SDK passes on only as many as the timeout needs


@asynccontextmanager
async def heartbeats() -> AsyncIterator[None]:
    """Heartbeat while the block runs: a worker whose event loop stands still is taken for dead, rightly."""

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(HEARTBEAT_SECONDS)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating
