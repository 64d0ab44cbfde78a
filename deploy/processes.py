"""Child processes that are watched, stopped, restarted, and never left behind.

A child runs in its own session (a Ctrl-C in the terminal reaches the stack alone, which then stops its
children in order), logs to a file, and ends when its parent ends (`deploy.launch`). Where the kernel can't
promise that, a record of pid and start time lets the next start end what an earlier one left. A pid alone
proves nothing: it may belong to a stranger by now, so no process is signalled unless its start time is the
recorded one.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from deploy.launch import launch_command
from workflows.domain.errors import ChargeonceError

LOG_TAIL_LINES = 15
LOG_LINE_MAX_CHARACTERS = 400
LOG_SIZE_MAX_BYTES = 16 * 1024 * 1024
_POLL_SECONDS = 0.02


class ChildFailed(ChargeonceError):
    """A child did not start or did not become healthy; the message ends with its last log lines."""


class Child:
    """One child process, started at most once at a time.

    Start it from a thread that outlives it (the main thread): the kernel's "parent died" is about that
    thread.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log_path: Path,
        record_path: Path,
        environment: Mapping[str, str] | None = None,
        working_directory: Path | None = None,
        identity: str = "same",
        stop_signal: signal.Signals = signal.SIGTERM,
        death_signal: signal.Signals = signal.SIGTERM,
        stop_timeout_seconds: float = 10.0,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log_path = log_path
        self.environment = environment
        self._record_path = record_path
        self._working_directory = working_directory
        self._identity = identity
        self._stop_signal = stop_signal
        self._death_signal = death_signal
        self._stop_timeout_seconds = stop_timeout_seconds
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The pid of the running child, or None."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """Whether the child lives. Asking also reaps it once it has ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of a child that has ended (negative: the signal that ended it), else None."""
        return None if self._process is None else self._process.poll()

    async def start(self) -> None:
        """Start the child, after ending the one that a killed parent may have left. A running child stays."""
        if self.running:
            return
        await end_leftover(
            self._record_path, stop_signal=self._stop_signal, timeout_seconds=self._stop_timeout_seconds
        )
        self._spawn()

    def _spawn(self) -> None:
        make_private_directory(self.log_path.parent)
        make_private_directory(self._record_path.parent)
        _rotate(self.log_path)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                launch_command(self.command, death_signal=self._death_signal, identity=self._identity),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=None if self.environment is None else dict(self.environment),
                cwd=self._working_directory,
                start_new_session=True,
            )
        record = {"name": self.name, "pid": self._process.pid, "started": start_time_of(self._process.pid)}
        write_private_file(self._record_path, json.dumps(record))

    async def start_until_healthy(
        self, is_healthy: Callable[[], Awaitable[bool]], *, deadline_seconds: float
    ) -> None:
        """Start and return once `is_healthy` says so; a child that does not get there is stopped again.

        Raises ChildFailed as `wait_until_healthy` does.
        """
        await self.start()
        try:
            await self.wait_until_healthy(is_healthy, deadline_seconds=deadline_seconds)
        except BaseException:
            await self.stop()
            raise

    async def wait_until_healthy(
        self, is_healthy: Callable[[], Awaitable[bool]], *, deadline_seconds: float
    ) -> None:
        """Return once `is_healthy` says so.

        Raises ChildFailed, with the log's tail, when the child ends first or is not healthy
        `deadline_seconds` from now (real time).
        """
        deadline = time.monotonic() + deadline_seconds
        while True:
            if not self.running:
                raise ChildFailed(f"{self.name} ended with exit code {self.exit_code}.{self.log_tail()}")
            remaining_seconds = deadline - time.monotonic()
            if remaining_seconds <= 0:
                raise ChildFailed(
                    f"{self.name} was not healthy after {deadline_seconds:g} s.{self.log_tail()}"
                )
            try:
                async with asyncio.timeout(remaining_seconds):
                    if await is_healthy():
                        return
            except TimeoutError:
                continue
            await asyncio.sleep(_POLL_SECONDS)

    async def wait_until_ended(self, *, deadline_seconds: float) -> bool:
        """Whether the child ended by itself within `deadline_seconds`."""
        deadline = time.monotonic() + deadline_seconds
        while self.running:
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    async def stop(self) -> None:
        """Ask the child to end; after `stop_timeout_seconds`, kill it and all of its session."""
        process = self._process
        if process is None:
            return
        if self.running:
            process.send_signal(self._stop_signal)
            if not await self.wait_until_ended(deadline_seconds=self._stop_timeout_seconds):
                self.kill()
        self._record_path.unlink(missing_ok=True)

    def kill(self) -> None:
        """End the child and its session with SIGKILL, at once, and reap it."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.kill()
        process.wait()

    def log_tail(self, *, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines of the log as text for an error message, with the log's path."""
        try:
            text = self.log_path.read_text("utf-8", errors="replace")
        except OSError:
            return f" There is no log at {self.log_path}."
        tail = "\n".join(f"  | {line[:LOG_LINE_MAX_CHARACTERS]}" for line in text.splitlines()[-lines:])
        return f" Its log {self.log_path} ends with:\n{tail}"


async def end_leftover(
    record_path: Path, *, stop_signal: signal.Signals = signal.SIGTERM, timeout_seconds: float = 10.0
) -> int | None:
    """End the process that a record names, if that very process still lives; its pid, or None.

    It gets `stop_signal`, and SIGKILL after `timeout_seconds`.
    """
    pid, started = _read_record(record_path)
    if start_time_of(pid) != started:
        return None
    deadline = time.monotonic() + timeout_seconds
    os.kill(pid, stop_signal)
    while start_time_of(pid) == started:
        if time.monotonic() >= deadline:
            os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(_POLL_SECONDS)
    return pid


def _read_record(record_path: Path) -> tuple[int, str]:
    try:
        record = json.loads(record_path.read_text("utf-8"))
        return int(record["pid"]), str(record["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, "nothing was recorded"


def start_time_of(pid: int) -> str | None:
    """A text that differs between any two processes that ever had this pid; None for one that does not live.

    A zombie does not live: it runs nothing, it only waits to be reaped.
    """
    if sys.platform != "linux":
        answer = subprocess.run(
            ["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        state, _, started = answer.stdout.strip().partition(" ")
        return None if answer.returncode != 0 or state.startswith("Z") else started.strip()
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    except OSError:
        return None
    # proc(5): the name may hold spaces and brackets, so fields are counted from the last one; 22 is the start
    # time.
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else f"{boot}:{fields[18]}"


def make_private_directory(path: Path) -> None:
    """Create `path` with mode 0700 where it is missing; an existing folder keeps its mode."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_private_file(path: Path, text: str) -> None:
    """Replace the file by `text` with mode 0600, in one step: readers see the old text or the new, whole."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _rotate(log_path: Path) -> None:
    if log_path.exists() and log_path.stat().st_size > LOG_SIZE_MAX_BYTES:
        log_path.replace(log_path.with_name(f"{log_path.name}.1"))
