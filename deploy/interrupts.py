"""Ctrl-C once stops cleanly, twice kills: the signals of a process that runs a stack."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from workflows.domain.errors import ChargeonceError, invariant

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StackInterrupted(ChargeonceError):
    """A signal ended what was using the stack; everything has been stopped."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signal_number).name}")
        self.signal_number = signal_number


class Interrupts:
    """What the signals of this process have asked for so far. `signal_number` is 0 before the first one."""

    def __init__(self) -> None:
        self.signal_number = 0
        self._asked = asyncio.Event()
        self._waiting = False
        self._canceled: asyncio.Task[object] | None = None

    async def wait(self) -> None:
        """Return when the first signal comes."""
        self._waiting = True
        try:
            await self._asked.wait()
        finally:
            self._waiting = False

    def absorb_cancellation(self) -> bool:
        """Whether the cancellation of the current task was the signal's, which is then taken back."""
        canceled = self._canceled
        if canceled is None:
            return False
        invariant(canceled is asyncio.current_task(), "the task that took the signals runs the stack")
        canceled.uncancel()
        self._canceled = None
        return True

    @contextmanager
    def caught(self, *, kill: Callable[[], None]) -> Iterator[None]:
        """Take SIGINT and SIGTERM for the current task; the second one calls `kill` and ends the process.

        Outside the main thread, where Python allows no signal handlers, nothing changes.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        previous = {number: signal.getsignal(number) for number in _SIGNALS}

        def receive(number: int) -> None:
            if self.signal_number:
                kill()
                os._exit(128 + number)
            self.signal_number = number
            self._asked.set()
            if not self._waiting and task is not None:
                self._canceled = task
                task.cancel()

        for number in _SIGNALS:
            loop.add_signal_handler(number, receive, number)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
                signal.signal(number, previous[number])
