"""What a million PaymentIntents cost: microseconds, memory, the worst pause, and the next start.

The requests go through the server's own protocol, without a socket, and times are CPU times of this thread:
neighbours on the machine do not count.
"""

import asyncio
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from deploy.stripe_sim.proof.wire_requests import make_confirm, make_create, make_seed, read_intent_id
from deploy.stripe_sim.seeding import seed_account
from deploy.stripe_sim.server import Connection
from deploy.stripe_sim.serving import tune_collector
from deploy.stripe_sim.simulator import Simulator

STEP: Final = 500


@dataclass(frozen=True)
class Milestone:
    """What was measured up to so many PaymentIntents, each created and confirmed under a key of its own.

    The microseconds are those of the last tenth, so that growth shows.
    """

    intents: int
    create_us: float
    confirm_us: float
    worst_pause_ms: float
    bytes_per_intent: int
    file_bytes_per_intent: int


class _Sink:
    """A transport that keeps the last answer."""

    def __init__(self) -> None:
        self.answer = b""

    def write(self, data: bytes) -> None:
        self.answer = data

    def is_closing(self) -> bool:
        return False


class _Meter:
    def __init__(self, simulator: Simulator) -> None:
        self._sink = _Sink()
        self._connection = Connection(simulator, set(), set())
        self._connection.connection_made(cast("asyncio.BaseTransport", self._sink))
        self.worst_seconds = 0.0

    def send(self, request: bytes) -> tuple[float, bytes]:
        """Return the CPU seconds that an answer took, and the answer."""
        began = time.thread_time()
        self._connection.data_received(request)
        seconds = time.thread_time() - began
        self.worst_seconds = max(self.worst_seconds, seconds)
        return seconds, self._sink.answer


def measure_scale(counts: tuple[int, ...]) -> list[Milestone]:
    """Measure at each of these numbers of PaymentIntents, in rising order, within one simulator."""
    tune_collector()
    return asyncio.run(_measure(counts))


async def _measure(counts: tuple[int, ...]) -> list[Milestone]:
    simulator = Simulator(seed=1)
    simulator.start()
    seed_account(simulator, make_seed(counts[-1]))
    meter, milestones, done = _Meter(simulator), [], 0
    before_bytes = _resident_bytes()
    for count in counts:
        meter.worst_seconds, tail = 0.0, max(STEP, count // 10)
        create_seconds = confirm_seconds = 0.0
        while done < count:
            numbers = range(done, done + STEP)
            created = [meter.send(make_create(number)) for number in numbers]
            ids = [read_intent_id(answer) for _, answer in created]
            confirmed = [meter.send(make_confirm(number, ids[number - done])) for number in numbers]
            read_intent_id(confirmed[-1][1])
            done += STEP
            if done > count - tail:
                create_seconds += sum(seconds for seconds, _ in created)
                confirm_seconds += sum(seconds for seconds, _ in confirmed)
        milestones.append(
            Milestone(
                done,
                1e6 * create_seconds / tail,
                1e6 * confirm_seconds / tail,
                1e3 * meter.worst_seconds,
                (_resident_bytes() - before_bytes) // done,
                simulator.log.size_bytes // done,
            )
        )
    simulator.close()
    return milestones


def measure_restart(count: int) -> float:
    """Return the seconds that a start takes on a state directory with so many paid PaymentIntents."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_fill(Path(folder), count))
        began = time.thread_time()
        Simulator(state_dir=Path(folder)).close()
        return time.thread_time() - began


async def _fill(folder: Path, count: int) -> None:
    simulator = Simulator(state_dir=folder, seed=1)
    simulator.start()
    seed_account(simulator, make_seed(count))
    meter = _Meter(simulator)
    for number in range(count):
        _, answer = meter.send(make_create(number))
        meter.send(make_confirm(number, read_intent_id(answer)))
    simulator.close()


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * int(os.sysconf("SC_PAGE_SIZE"))


def show_milestone(milestone: Milestone) -> dict[str, Any]:
    """Return a milestone as a row of the report."""
    return {
        "PaymentIntents": f"{milestone.intents:,}",
        "us per create": f"{milestone.create_us:.0f}",
        "us per confirm": f"{milestone.confirm_us:.0f}",
        "worst pause, ms": f"{milestone.worst_pause_ms:.1f}",
        "memory each, bytes": f"{milestone.bytes_per_intent:,}",
        "disk each, bytes": f"{milestone.file_bytes_per_intent:,}",
    }
