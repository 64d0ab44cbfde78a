"""Processes of the product that are there at once: forked by one that has everything imported.

They are real processes with a pid, an environment, a log and an exit code of their own, and SIGKILL ends
them as it ends others. That the product starts from nothing is shown elsewhere: by the tests of the embedded
stack, which starts its processes the ordinary way, and by commands that run side by side or at a keyboard.
"""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
# A command of `chargeonce` imports what it needs when it is called, so that stands here too.
IMPORTED = (
    "tests.crash.dying_worker",
    "tests.proxy.dying_proxy",
    "deploy.attach",
    "deploy.cli",
    "worker.proof",
    "worker.reconcile_start",
    "worker.run_approval",
    "worker.run_decisions",
    "worker.run_read",
    "worker.run_start",
    "worker.run_tick",
)
_POLL_SECONDS = 0.005


@dataclass
class Forked:
    """A process that the nursery forked."""

    pid: int
    _ended: Path

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative where a signal ended it; None while it runs."""
        return int(self._ended.read_text("ascii")) if self._ended.exists() else None

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM, if it runs."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, if it runs."""
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Wait for its end and return its exit code."""
        while (code := self.returncode) is None:  # noqa: ASYNC110 - it is another process's child
            await asyncio.sleep(_POLL_SECONDS)
        return code

    def wait_here(self, *, deadline_seconds: float) -> int:
        """Wait for its end where there is no event loop, and return its exit code. Raises TimeoutError."""
        until = time.monotonic() + deadline_seconds
        while (code := self.returncode) is None:
            if time.monotonic() > until:
                raise TimeoutError(f"process {self.pid} has not ended after {deadline_seconds:g} s")
            time.sleep(_POLL_SECONDS)
        return code


@dataclass
class Nursery:
    """The process that forks."""

    process: "subprocess.Popen[str]"
    folder: Path
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def fork(
        self,
        call: str,
        *,
        environment: Mapping[str, str],
        output: Path,
        errors: Path | None = None,
        arguments: Sequence[str] = (),
    ) -> Forked:
        """Start a process that calls "module:function"; what it writes is appended to `output`."""
        ended = self.folder / str(next(self._numbers))
        order = {
            "call": call,
            "arguments": list(arguments),
            "environment": dict(environment),
            "output": str(output),
            "errors": str(errors or output),
            "ended": str(ended),
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with self._turn:
            print(json.dumps(order), file=self.process.stdin, flush=True)
            return Forked(int(self.process.stdout.readline()), ended)

    def type_command(
        self, words: Sequence[str], *, environment: Mapping[str, str], deadline_seconds: float = 120.0
    ) -> "subprocess.CompletedProcess[str]":
        """Run `chargeonce` to its end, with nobody at the keyboard. Raises TimeoutError."""
        number = next(self._numbers)
        output, errors = self.folder / f"{number}.output", self.folder / f"{number}.errors"
        process = self.fork(
            "deploy.cli:main", environment=environment, output=output, errors=errors, arguments=words
        )
        try:
            code = process.wait_here(deadline_seconds=deadline_seconds)
        finally:
            process.kill()
        return subprocess.CompletedProcess(
            args=list(words),
            returncode=code,
            stdout=output.read_text("utf-8"),
            stderr=errors.read_text("utf-8"),
        )


@contextmanager
def open_nursery() -> Iterator[Nursery]:
    """Yield a process that forks others, and end it and them afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="chargeonce-nursery-") as folder,
        subprocess.Popen(
            (sys.executable, "-m", "tests.nursery", *IMPORTED),
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        yield Nursery(process, Path(folder))
