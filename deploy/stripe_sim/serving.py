"""The simulator as a process: starts, says where it is, and stops at the first signal."""

import asyncio
import gc
import json
import signal
from pathlib import Path

import uvloop

from deploy.stripe_sim.server import serve
from deploy.stripe_sim.simulator import Simulator


def run_until_signal(simulator: Simulator, *, host: str, port: int, ready_file: Path | None) -> None:
    """Serve until SIGTERM or SIGINT; prints one line with the URL once it listens."""
    tune_collector()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(simulator, host, port, ready_file))


def tune_collector() -> None:
    """Keep the collector's pauses short: what a request leaves behind is freed by its reference counts.

    Young objects are looked at in small batches; all of those alive (caches, mostly) at most once in ten
    million, since that takes tens of milliseconds.
    """
    gc.freeze()
    gc.set_threshold(2_000, 5_000, 100)


async def _serve(simulator: Simulator, host: str, port: int, ready_file: Path | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with serve(simulator, host=host, port=port) as url:
        _write_ready(ready_file, url, simulator.seed)
        print(f"stripe simulator at {url} (seed {simulator.seed})", flush=True)
        await stop.wait()


def _write_ready(ready_file: Path | None, url: str, seed: int) -> None:
    if ready_file is None:
        return
    # Renamed into place, so that nobody reads half of it.
    part = ready_file.with_name(f"{ready_file.name}.part")
    part.write_text(json.dumps({"url": url, "seed": seed}), encoding="utf-8")
    part.replace(ready_file)
