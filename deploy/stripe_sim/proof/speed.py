"""How many creates and confirms a second one core serves, over real sockets.

The simulator runs in a process of its own, and what counts is the CPU time of that process: its clients, and
whatever else the machine does, are not part of it.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from deploy.stripe_sim.proof.wire_requests import make_confirm, make_create, make_seed, read_intent_id

CONNECTIONS: Final = 16
START_SECONDS_MAX: Final = 60.0


@dataclass(frozen=True)
class Speed:
    """Requests per second: of CPU time of one core, and of the wall clock with everything on this machine."""

    step: str
    per_cpu_second: float
    per_second: float

    @property
    def cpu_us(self) -> float:
        """CPU microseconds per request, sockets and all."""
        return 1e6 / self.per_cpu_second


def measure_speed(count: int) -> list[Speed]:
    """Create and then confirm so many PaymentIntents."""
    with _running_process() as (url, pid):
        seed = json.dumps(make_seed(count)).encode()
        with urlopen(Request(f"{url}/_sim/seed", data=seed, method="POST")) as answer:  # noqa: S310 - our own
            answer.read()
        return asyncio.run(_measure(url, pid, count))


async def _measure(url: str, pid: int, count: int) -> list[Speed]:
    parts = urlsplit(url)
    streams = [await asyncio.open_connection(parts.hostname, parts.port) for _ in range(CONNECTIONS)]
    ids = [""] * count

    async def send(step: str, lane: int) -> None:
        reader, writer = streams[lane]
        for number in range(lane, count, CONNECTIONS):
            is_create = step == "create"
            writer.write(make_create(number) if is_create else make_confirm(number, ids[number]))
            intent_id = read_intent_id(await _read_answer(reader))
            ids[number] = intent_id

    speeds = []
    for step in ("create", "confirm"):
        cpu_began, began = _cpu_seconds(pid), time.perf_counter()
        await asyncio.gather(*(send(step, lane) for lane in range(CONNECTIONS)))
        cpu, wall = _cpu_seconds(pid) - cpu_began, time.perf_counter() - began
        speeds.append(Speed(step, count / cpu, count / wall))
    for _, writer in streams:
        writer.close()
    return speeds


async def _read_answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Length:"))
    return head + await reader.readexactly(int(length.split(b":")[1]))


@contextmanager
def _running_process() -> Iterator[tuple[str, int]]:
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        command = [sys.executable, "-m", "deploy.stripe_sim", "--port", "0", "--ready-file", str(ready)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                yield _wait_for_url(ready), process.pid
            finally:
                process.terminate()


def _wait_for_url(ready: Path) -> str:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not ready.exists():
        if time.monotonic() > deadline:
            raise TimeoutError("the simulator did not start")
        time.sleep(0.02)
    found: dict[str, Any] = json.loads(ready.read_text(encoding="utf-8"))
    return str(found["url"])


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
