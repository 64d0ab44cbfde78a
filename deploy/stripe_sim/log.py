"""The append-only log that lets a simulator survive a restart: one JSON list a line, kind first."""

import asyncio
import json
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, Final

from deploy.stripe_sim.encoding import encode_json

FLUSH_SECONDS: Final = 0.05
FLUSH_LINES_MAX: Final = 2_000


class Log:
    """Lines are buffered and reach the file at least every 50 ms, and when it is closed.

    Without a directory nothing is written and nothing is read.
    """

    def __init__(self, state_dir: Path | None) -> None:
        self._file: FileIO | None = None
        self._lines: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._path: Path | None = None
        if state_dir is not None:
            state_dir.mkdir(parents=True, exist_ok=True)
            self._path = state_dir / "stripe_sim.jsonl"

    def read(self) -> Iterator[list[Any]]:
        """Yield every record, oldest first, and open the log for writing behind the last whole one.

        A line that a kill cut in two is dropped from the file: whatever it recorded had not been flushed.
        """
        if self._path is None:
            return
        whole_bytes = 0
        if self._path.exists():
            with self._path.open("rb") as file:
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    record = json.loads(line)
                    whole_bytes += len(line)
                    yield record
        self._file = self._path.open("ab", buffering=0)
        self._file.truncate(whole_bytes)

    def append(self, *record: Any) -> None:
        """Write a record, soon."""
        if self._file is None:
            return
        self._lines.append(encode_json(record))
        if len(self._lines) >= FLUSH_LINES_MAX:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Write what is buffered, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._file is None or not self._lines:
            return
        data = memoryview(("\n".join(self._lines) + "\n").encode())
        self._lines.clear()
        while data:
            data = data[self._file.write(data) :]

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None
