"""`chargeonce proxy` is what `python -m worker.proxy` is, with what was typed in place of the environment."""

import asyncio
from pathlib import Path

import uvloop

from worker.proxy.server import log_to_stderr, run_proxy
from worker.proxy.settings import load_proxy_settings
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput


def run_proxy_process(*, listen: str | None, ready_file: Path | None, live: bool) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Raises:
        InvalidInput: `listen` is no ADDRESS:PORT.
        RefusedToStart: As `worker.proxy.server.run_proxy`.
    """
    settings = load_proxy_settings(live=live)
    if listen is not None:
        host, port = read_listen(listen)
        settings = settings.model_copy(update={"host": host, "port": port})
    if ready_file is not None:
        settings = settings.model_copy(update={"ready_file": ready_file})
    log_to_stderr()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_proxy(settings))


def read_listen(text: str) -> tuple[str, int]:
    """Return address and port of "127.0.0.1:12112" or "[::1]:12112"; raises InvalidInput."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise InvalidInput(f"{echo(text)} is no place to listen: write 127.0.0.1:12112")
    return host, int(port)
