"""The append-only file that holds everything: in memory there are only addresses into it.

A record is one line: a JSON list, kind first, and behind a tab, where there is one, the raw body of a stored
answer. Records are written in batches, each under a line `#` with its length. A batch holds whole requests:
a kill in the middle of a write loses the batch, never half a request.

With a state directory the file is the simulator's memory across restarts, and a request's batch is written
before its answer leaves, so that `kill -9` forgets nothing that a client was told. (A power cut may: nothing
is synced.) Without one it is an unlinked temporary file.
"""

import asyncio
import os
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from deploy.stripe_sim.encoding import decode_json, encode_json

FLUSH_SECONDS: Final = 0.05
UNFLUSHED_BYTES_MAX: Final = 64 * 1024
_FILE_NAME: Final = "stripe_sim.jsonl"
_HEADER_BYTES: Final = 12
_READ_BYTES: Final = 4_096


class Log:
    """Append, commit, and load by address. An address is where a record's line begins in the file."""

    def __init__(self, state_dir: Path | None) -> None:
        self.is_durable = state_dir is not None
        self._pending = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._descriptor = _open_file(state_dir)
        self._flushed_bytes = os.fstat(self._descriptor).st_size
        self._close = weakref.finalize(self, os.close, self._descriptor)

    @property
    def size_bytes(self) -> int:
        """How much has been written, what is still pending included."""
        return self._flushed_bytes + len(self._pending)

    def read(self) -> Iterator[tuple[int, list[Any]]]:
        """Yield every record with its address, oldest first, and cut off what a kill left incomplete.

        Read to the end before the first append.
        """
        size, whole = self._flushed_bytes, 0
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        with open(self._descriptor, "rb", buffering=1 << 20, closefd=False) as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                if line.startswith(b"#"):
                    if whole + len(line) + int(line[1:]) > size:
                        break
                else:
                    yield whole, decode_json(line.decode("latin-1"))
                whole += len(line)
        os.truncate(self._descriptor, whole)
        self._flushed_bytes = whole

    def append(self, *record: Any, body: bytes = b"") -> int:
        """Write a record, and the body of an answer with it, soon; returns its address."""
        pending = self._pending
        if not pending:
            pending += b"#%010d\n" % 0
            if self.is_durable:
                self._flush_later()
        address = self._flushed_bytes + len(pending)
        pending += encode_json(record).encode()
        if body:
            pending += b"\t"
            pending += body
        pending += b"\n"
        return address

    def load(self, address: int) -> tuple[list[Any], bytes]:
        """Return the record at an address, and the body of the answer that was written with it."""
        line = self._load_line(address)
        head, _, body = line.partition(b"\t")
        record: list[Any] = decode_json(head.decode("ascii"))
        return record, body

    def commit(self) -> None:
        """Say that a request is complete. What is on disk must be there before its answer leaves."""
        if self._pending and (self.is_durable or len(self._pending) > UNFLUSHED_BYTES_MAX):
            self.flush()

    def flush(self) -> None:
        """Write what is pending, now."""
        if not self._pending:
            return
        pending, self._pending = self._pending, bytearray()
        pending[:_HEADER_BYTES] = b"#%010d\n" % (len(pending) - _HEADER_BYTES)
        self._flushed_bytes += len(pending)
        data = memoryview(pending)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """Flush and close."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._close.alive:
            self.flush()
            self._close()

    def _load_line(self, address: int) -> bytes:
        if address >= self._flushed_bytes:
            start = address - self._flushed_bytes
            return bytes(self._pending[start : self._pending.index(b"\n", start)])
        size = _READ_BYTES
        while True:
            data = os.pread(self._descriptor, size, address)
            end = data.find(b"\n")
            if end >= 0:
                return data[:end]
            if len(data) < size:
                raise RuntimeError(f"no whole record at address {address}")
            size *= 8

    def _flush_later(self) -> None:
        # Requests commit themselves; this catches what other tasks write, such as deliveries of webhooks.
        if self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._flush_now)
            except RuntimeError:
                return

    def _flush_now(self) -> None:
        self._timer = None
        self.flush()


def _open_file(state_dir: Path | None) -> int:
    if state_dir is None:
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())
    state_dir.mkdir(parents=True, exist_ok=True)
    return os.open(state_dir / _FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
