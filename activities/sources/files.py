"""Files that sources are read from: nothing here waits for a writer or trusts what is in them."""

import hashlib
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from workflows.domain.errors import InvalidInput

_UTF16_MARKS = ("\udcff\udcfe", "\udcfe\udcff")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn every error of opening and reading `path` into InvalidInput; refuse what is no regular file."""
    try:
        # Opening a FIFO would wait for its writer for ever.
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
            raise InvalidInput(f"the source {str(path)!r} is {kind}")
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidInput(f"the source {str(path)!r} can't be read: {reason}") from error


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Yield the file as text: UTF-8 with or without a byte order mark, lines ended by LF alone.

    A byte that is not UTF-8 becomes a lone surrogate, which spoils its own cell and no other.

    Raises:
        InvalidInput: The file can't be opened or read, is no regular file, or is empty.
    """
    with (
        readable(path),
        path.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as file,
    ):
        refuse_empty(path)
        yield file


def refuse_empty(path: Path) -> None:
    """Raise InvalidInput for a file without a byte."""
    if path.stat().st_size == 0:
        raise InvalidInput(f"the source {str(path)!r} is empty")


def refuse_utf16(first_line: str) -> None:
    """Raise InvalidInput where a text's first line shows that a spreadsheet wrote it as UTF-16."""
    if first_line.startswith(_UTF16_MARKS) or "\0" in first_line:
        raise InvalidInput("the file is not UTF-8 but looks like UTF-16: save it as UTF-8")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in hex.

    Raises:
        InvalidInput: The file can't be opened or read, or is no regular file.
    """
    with readable(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
