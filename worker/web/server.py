"""The receiver's process: opens its parts in order, serves until it is told to stop, and drains."""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from activities.ledger.database import open_pool
from activities.ledger.inbox import InboxLedger
from worker.listening import listening
from worker.web.app import Receiver, answer_failure, build_app
from worker.web.settings import WebSettings

_LOG = logging.getLogger("chargeonce.web")


async def run_web(settings: WebSettings) -> None:
    """Serve until SIGTERM or SIGINT, then answer what has been read.

    Raises:
        RefusedToStart: No database, or the port is taken.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with open_web(settings) as url:
        if settings.ready_file is not None:
            settings.ready_file.write_text(json.dumps({"pid": os.getpid(), "url": url}))
        _LOG.info(json.dumps({"event": "web_ready", "url": url}))
        await stop.wait()


@asynccontextmanager
async def open_web(settings: WebSettings) -> AsyncIterator[str]:
    """Yield the URL of a serving receiver. Raises as `run_web`."""
    async with open_pool(
        settings.database_url.get_secret_value(), connections=settings.database_connections
    ) as pool:
        app = build_app(Receiver(InboxLedger(pool), settings))
        async with listening(
            app, "the webhook receiver", settings.host, settings.port, answer=answer_failure, log=_LOG
        ) as url:
            yield url


def log_to_stderr() -> None:
    """Write the receiver's log, JSON lines, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.INFO)
    _LOG.propagate = False
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)  # a lost database is told here, in one line
