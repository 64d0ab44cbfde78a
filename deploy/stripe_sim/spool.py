"""Bytes that are written once and seldom read: a file without a name, behind a small buffer."""

import os
import tempfile
import weakref
from pathlib import Path
from typing import Final

BUFFER_BYTES_MAX: Final = 1 << 18


class Spool:
    """Append-only bytes, found again by offset and length.

    What is in memory never exceeds the buffer; the file is gone as soon as the process is.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._written_bytes = 0
        self._buffer = bytearray()

    def append(self, data: bytes) -> int:
        """Take in some bytes and return the offset at which they are found."""
        offset = self._written_bytes + len(self._buffer)
        self._buffer += data
        if len(self._buffer) >= BUFFER_BYTES_MAX:
            self._flush()
        return offset

    def read(self, offset: int, length_bytes: int) -> bytes:
        """Return the bytes at an offset."""
        if offset >= self._written_bytes:
            start = offset - self._written_bytes
            return bytes(self._buffer[start : start + length_bytes])
        return os.pread(self._need_file(), length_bytes, offset)

    def _flush(self) -> None:
        data = memoryview(bytes(self._buffer))
        self._buffer.clear()
        self._written_bytes += len(data)
        while data:
            data = data[os.write(self._need_file(), data) :]

    def _need_file(self) -> int:
        if self._descriptor is None:
            descriptor, name = tempfile.mkstemp(prefix="stripe_sim_")
            Path(name).unlink()
            weakref.finalize(self, os.close, descriptor)
            self._descriptor = descriptor
        return self._descriptor
