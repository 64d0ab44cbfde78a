"""The inbox being worked through, beside whatever else a process does, for as long as it lives.

Woken by the database with each commit of new events; without a wake-up it looks by itself. Nothing that goes
wrong here ends the process: what is in the table stays there until somebody has worked through it.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from activities.inbox import CLAIM_EVENTS, InboxWorker
from activities.ledger.wake import Wake, listening
from workflows.domain.errors import RefusedToStart

PAUSE_SECONDS_MAX = 30.0
HANDS = 2  # an account that is slow to answer keeps one of them at most half of the time

_LOG = logging.getLogger("chargeonce.inbox")


@asynccontextmanager
async def working_inbox(
    worker: InboxWorker, database_url: str, *, sweep_seconds: float
) -> AsyncIterator[None]:
    """Work through the inbox while the block runs; 0 seconds between sweeps means not here."""
    if sweep_seconds == 0:
        yield
        return
    wake = Wake()
    tasks = [asyncio.create_task(_listen(database_url, wake, sweep_seconds))]
    tasks += [asyncio.create_task(_work(worker, wake, sweep_seconds)) for _ in range(HANDS)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(Exception):  # the leases run out by themselves
            await worker.give_back()


async def _listen(database_url: str, wake: Wake, sweep_seconds: float) -> None:
    while True:
        try:
            async with listening(database_url) as heard:
                while not heard.lost:
                    await heard.wait(sweep_seconds)
                    wake.set()
        except RefusedToStart:
            await asyncio.sleep(sweep_seconds)
        except Exception as error:  # noqa: BLE001 - sweeps go on without wake-ups
            _tell("inbox_not_listening", error)
            await asyncio.sleep(sweep_seconds)


async def _work(worker: InboxWorker, wake: Wake, sweep_seconds: float) -> None:
    pause_seconds = 0.0
    while True:
        try:
            done = await worker.work()
            pause_seconds = 0.0
        except Exception as error:  # noqa: BLE001 - the events stay where they are, and are taken again
            _tell("inbox_stopped", error)
            pause_seconds = min(max(1.0, pause_seconds * 2), PAUSE_SECONDS_MAX)
            await asyncio.sleep(pause_seconds)
            continue
        if done.events < CLAIM_EVENTS:
            await wake.wait(sweep_seconds)


def _tell(event: str, error: BaseException) -> None:
    _LOG.warning(json.dumps({"event": event, "error": type(error).__name__}))
