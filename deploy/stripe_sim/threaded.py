"""A simulator in a thread of its own, for tests and scripts that know nothing of asyncio."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from deploy.stripe_sim.deliveries import Attempt
from deploy.stripe_sim.journal import Movement, Request
from deploy.stripe_sim.testing import RunningSim, running_sim

ResultT = TypeVar("ResultT")
START_SECONDS: Final = 30.0
WAIT_SECONDS: Final = 60.0


@dataclass(frozen=True)
class ThreadedSim:
    """A simulator that listens at `url`; each call is carried out in the simulator's own thread."""

    url: str
    _running: RunningSim
    _loop: asyncio.AbstractEventLoop

    def do(self, action: Callable[[RunningSim], ResultT]) -> ResultT:
        """Return what a function makes of the simulator, in its thread."""

        async def run() -> ResultT:
            return action(self._running)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(WAIT_SECONDS)

    def seed(self, customer: str, *payment_methods: str, **options: str | None) -> None:
        """Make sure that a customer exists, with these payment methods attached."""
        self.do(lambda sim: sim.seed(customer, *payment_methods, **options))

    def freeze(self, at: float) -> None:
        """Let the clock stand still at this Unix time."""
        self.do(lambda sim: sim.clock.freeze(at))

    def advance(self, seconds: float) -> None:
        """Move the clock on; what falls due happens, and webhooks that are due are tried."""
        self.do(lambda sim: sim.clock.advance(seconds))
        self.deliver()

    def deliver(self) -> None:
        """Wait until every webhook that is due has been tried."""
        asyncio.run_coroutine_threadsafe(self._running.deliver(), self._loop).result(WAIT_SECONDS)

    def set_faults(self, *faults: dict[str, Any]) -> None:
        """Put these faults in force, written as in a plan file."""
        self.do(lambda sim: sim.set_faults(*faults))

    def set_webhook_faults(self, *faults: dict[str, Any]) -> None:
        """Put these faults of webhook delivery in force."""
        self.do(lambda sim: sim.set_webhook_faults(*faults))

    def change(self, **settings: Any) -> None:
        """Change settings."""
        self.do(lambda sim: sim.change(**settings))

    def summary(self, identity: str | None = None) -> dict[str, Any]:
        """Return requests, payments and money in numbers, and every double charge by name."""
        return self.do(lambda sim: sim.summary(identity))

    @property
    def requests(self) -> list[Request]:
        """Every request on the wire."""
        return self.do(lambda sim: list(sim.requests))

    @property
    def movements(self) -> list[Movement]:
        """All money that moved."""
        return self.do(lambda sim: list(sim.movements))

    @property
    def deliveries(self) -> list[Attempt]:
        """Every attempt to deliver a webhook."""
        return self.do(lambda sim: sim.deliveries)


@contextmanager
def sim_in_thread(
    *, state_dir: Path | None = None, seed: int = 1, port: int = 0, **settings: Any
) -> Iterator[ThreadedSim]:
    """Run a simulator beside the caller; `settings` are the fields of `Settings`, such as `latency_ms=5`."""
    started: list[ThreadedSim] = []
    failed: list[BaseException] = []
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with running_sim(state_dir=state_dir, seed=seed, port=port, **settings) as running:
            started.append(ThreadedSim(running.url, running, asyncio.get_running_loop()))
            ready.set()
            await asyncio.to_thread(stop.wait)

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - it is raised again where the simulator was asked for
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="stripe-sim", daemon=True)
    thread.start()
    ready.wait(START_SECONDS)
    if not started:
        raise failed[0] if failed else TimeoutError("the simulator did not start")
    try:
        yield started[0]
    finally:
        stop.set()
        thread.join(START_SECONDS)
