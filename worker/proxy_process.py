"""`chargeonce proxy` is what `python -m worker.proxy` is, with what was typed in place of the environment."""

import asyncio
from pathlib import Path

import uvloop

from worker.proxy.server import log_to_stderr, run_proxy
from worker.proxy.settings import load_proxy_settings
from worker.typed_settings import type_over


def run_proxy_process(*, listen: str | None, ready_file: Path | None, live: bool) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Raises:
        InvalidInput: `listen` is no ADDRESS:PORT.
        RefusedToStart: As `worker.proxy.server.run_proxy`.
    """
    settings = type_over(load_proxy_settings(live=live), listen=listen, ready_file=ready_file)
    log_to_stderr()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_proxy(settings))
