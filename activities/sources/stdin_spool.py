"""Standard input becomes a file, since a run reads its source more than once and elsewhere."""

import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

from workflows.domain.errors import InvalidInput

_CHUNK_BYTES = 1 << 20
_MARK = b"\xef\xbb\xbf"


def spool_stdin(folder: Path, stream: BinaryIO | None = None) -> Path:
    """Store all of standard input (or `stream`) in `folder`, for its owner alone, and return the file.

    It is named by the SHA-256 of its bytes, so the same input is the same file, and ends in `.jsonl` where
    the first byte that is no blank is `{`, otherwise in `.csv`. It is on disk, whole, before it has its name.
    `folder` is made where it is missing.

    Raises:
        InvalidInput: Nothing was sent, standard input is a terminal, or the file can't be written.
    """
    stream = stream or sys.stdin.buffer
    if stream.isatty():
        raise InvalidInput("standard input is a terminal: send a file or another command's output to it")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _spool(folder, stream)
    except OSError as error:
        raise InvalidInput(f"standard input can't be stored in {str(folder)!r}: {error.strerror}") from error


def _spool(folder: Path, stream: BinaryIO) -> Path:
    descriptor, draft = tempfile.mkstemp(prefix=".stdin-", dir=folder)  # of mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            path = folder / _copy(stream, file)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    _sync_folder(folder)
    return path


def _copy(stream: BinaryIO, file: BinaryIO) -> str:
    """Write the stream into the file and return the name that its bytes give it."""
    digest, suffix = hashlib.sha256(), ""
    while chunk := stream.read(_CHUNK_BYTES):
        suffix = suffix or _suffix_of(chunk)
        digest.update(chunk)
        file.write(chunk)
    if not file.tell():
        raise InvalidInput("standard input is empty")
    return f"stdin-{digest.hexdigest()}{suffix or '.csv'}"


def _suffix_of(chunk: bytes) -> str:
    """Return how the file's name ends, or "" where there are only blanks yet."""
    begun = chunk.removeprefix(_MARK).lstrip()
    if not begun:
        return ""
    return ".jsonl" if begun.startswith(b"{") else ".csv"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
