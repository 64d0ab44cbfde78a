"""A process of ours that says when it is ready by writing a file: the simulator and the workers."""

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.processes import Child, make_private_directory


class ReadyProcess:
    """One such process; its record and its ready file are below `directory`, where it also runs."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        directory: Path,
        log_path: Path,
        environment: Mapping[str, str],
        death_signal: signal.Signals = signal.SIGTERM,
        start_timeout_seconds: float = 60.0,
        stop_timeout_seconds: float = 10.0,
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._directory = directory
        self._ready_path = ready_path_of(directory, name)
        self._start_timeout_seconds = start_timeout_seconds
        self._child = Child(
            name,
            command,
            log_path=log_path,
            record_path=directory / f"{name}.child.json",
            environment=environment,
            # Modules are found through the installation alone, never in the folder the user happens to be in.
            working_directory=directory,
            death_signal=death_signal,
            stop_timeout_seconds=stop_timeout_seconds,
        )

    @property
    def pid(self) -> int | None:
        """The pid of the running process, or None."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._child.running

    async def start(self) -> None:
        """Start the process and wait for its ready file; one that runs already stays. Raises ChildFailed."""
        if self.running:
            return
        self._clear()
        await self._child.start_until_healthy(self._is_ready, deadline_seconds=self._start_timeout_seconds)

    def _clear(self) -> None:
        make_private_directory(self._directory)
        self._ready_path.unlink(missing_ok=True)

    async def _is_ready(self) -> bool:
        return self._ready_path.exists()

    async def stop(self) -> None:
        """Ask the process to end, and see that it does."""
        await self._child.stop()

    def kill(self) -> int | None:
        """End the process with SIGKILL, as a crash would; the pid it had."""
        pid = self.pid
        self._child.kill()
        return pid


def ready_path_of(directory: Path, name: str) -> Path:
    """Where the process of that name says that it is ready."""
    return directory / f"{name}.ready"
