"""What starting the parts of a stack takes: side by side, each on a port that is free."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from deploy.ports import choose_port, is_free
from deploy.processes import ChildFailed
from deploy.ready_process import ReadyProcess

_PORT_ATTEMPTS = 3


class Part(Protocol):
    """One process of a stack."""

    @property
    def running(self) -> bool:
        """Whether the process lives."""

    async def start(self) -> None:
        """Start it unless it runs, on the port it had, and wait until it is healthy."""

    async def stop(self) -> None:
        """Ask it to end, and see that it does."""

    def kill(self) -> int | None:
        """End it with SIGKILL; the pid it had."""


async def side_by_side(*starts: Awaitable[None]) -> None:
    """Run independent starts together; the first failure cancels the others and is raised as it is."""

    async def run(start: Awaitable[None]) -> None:
        await start

    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            for start in starts:
                group.create_task(run(start))
    except* Exception as failures:  # noqa: BLE001 - whatever the first one was is raised below
        failure = failures.exceptions[0]
    if failure is not None:
        raise failure


async def start_on_free_port(make: Callable[[int], ReadyProcess], wanted: int | None) -> None:
    """Start what `make` returns for a port, on another one where somebody else was quicker to take it."""
    for attempt in range(1, _PORT_ATTEMPTS + 1):
        port = choose_port(wanted)
        try:
            await make(port).start()
            return
        except ChildFailed:
            if attempt == _PORT_ATTEMPTS or is_free(port):
                raise
