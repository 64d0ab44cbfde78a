"""`chargeonce web` is what `python -m worker.web` is, with what was typed in place of the environment."""

import asyncio
from pathlib import Path

import uvloop

from worker.typed_settings import type_over
from worker.web.server import log_to_stderr, run_web
from worker.web.settings import load_web_settings


def run_web_process(*, listen: str | None, ready_file: Path | None, live: bool) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Raises:
        InvalidInput: `listen` is no ADDRESS:PORT.
        RefusedToStart: As `worker.web.server.run_web`.
    """
    settings = type_over(load_web_settings(live=live), listen=listen, ready_file=ready_file)
    log_to_stderr()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_web(settings))
