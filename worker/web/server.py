"""The receiver's process: opens its parts in order, serves until it is told to stop, and drains."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from activities.ledger.database import open_pool
from activities.ledger.inbox import InboxLedger
from worker.listening import listening
from worker.serving import log_lines_to_stderr, stop_on_signal, tell_ready
from worker.web.app import Receiver, answer_failure, build_app
from worker.web.settings import WebSettings

_LOG = logging.getLogger("chargeonce.web")


async def run_web(settings: WebSettings) -> None:
    """Serve until SIGTERM or SIGINT, then answer what has been read.

    Raises:
        RefusedToStart: No database, or the port is taken.
    """
    stop = stop_on_signal()
    async with open_web(settings) as url:
        tell_ready(_LOG, "web_ready", url, settings.ready_file)
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
    log_lines_to_stderr(_LOG)
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)  # a lost database is told here, in one line
