"""Physical lines for the csv module, with row numbers that stay right after a broken record.

`csv.reader` asks for lines until a record is complete. One quote that is never closed makes it swallow the
rest of the file, and the customers in it. So the lines of the record being read are held, up to a bounded
number, and after an error all but the first are read again as records of their own.
"""

from collections.abc import Iterator
from functools import partial
from typing import TextIO

# A record with every column at its own limit and each character a doubled quote needs less than half of it.
RECORD_CHARACTERS_MAX = 8192
# Bounds the rereading of a file in which every line opens a quote.
RECORD_LINES_MAX = 100
_READ_CHARACTERS = RECORD_CHARACTERS_MAX + 1


class RecordTooLong(Exception):
    """A signal through csv.reader: the record goes on past one of the limits."""


class PhysicalLines:
    """An iterator over the lines of a text file where only LF ends a line; each has its line end.

    Memory stays bounded whatever the file holds: of a line over the limit only the beginning is kept.
    """

    __slots__ = ("_again", "_file", "_held", "_held_characters", "_row", "_source")

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._source = iter(partial(file.readline, _READ_CHARACTERS), "")
        self._again: list[str] = []
        self._held: list[str] = []
        self._held_characters = 0
        self._row = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.pop() if self._again else self._read()
        self._row += 1
        self._held.append(line)
        self._held_characters += len(line)
        if self._held_characters > RECORD_CHARACTERS_MAX or len(self._held) > RECORD_LINES_MAX:
            raise RecordTooLong
        return line

    @property
    def row(self) -> int:
        """The physical line, from 1, where the record being read begins."""
        return self._row - len(self._held) + 1

    def begin_record(self) -> None:
        """Forget the lines of the record before: it was read, or given up."""
        self._held.clear()
        self._held_characters = 0

    def give_up_record(self) -> None:
        """Give up on the first line of the record being read, and hand out its other lines again."""
        others = self._held[1:]
        self._again.extend(reversed(others))
        self._row -= len(others)
        self.begin_record()

    def _read(self) -> str:
        line = next(self._source)
        if len(line) == _READ_CHARACTERS and not line.endswith("\n"):
            for part in self._source:
                if part.endswith("\n"):
                    break
        return line
