"""What each of our processes does around its work: hears signals, says that it is ready, logs lines."""

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path


def stop_on_signal() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set from now on."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def tell_ready(log: logging.Logger, event: str, url: str, ready_file: Path | None) -> None:
    """Log that a URL is served, and write it with our pid into the file that somebody waits for."""
    if ready_file is not None:
        ready_file.write_text(json.dumps({"pid": os.getpid(), "url": url}))
    log.info(json.dumps({"event": event, "url": url}))


def log_lines_to_stderr(log: logging.Logger) -> None:
    """Write a log of JSON lines to standard error, and nowhere else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
