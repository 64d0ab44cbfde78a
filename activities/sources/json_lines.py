"""Charges from JSON lines: one object a physical line, UTF-8 with or without a byte order mark.

Keys are the columns of a CSV file, in any order; a key that is left out or null is an empty cell. Amounts are
strings or numbers. Numbers are read digit by digit, never as floats.
"""

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TextIO

from activities.sources import SourceLine, SourceProblem
from activities.sources.files import open_text, refuse_utf16
from activities.sources.keyed_rows import KeyedRowReader
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput

# Every column at its own limit, each character written as two \\uXXXX escapes, needs less than half of it.
LINE_CHARACTERS_MAX = 32_768
_READ_CHARACTERS = LINE_CHARACTERS_MAX + 1
_BLANKS = " \t\r\n"


def read_json_lines(path: Path) -> Iterator[SourceLine | SourceProblem]:
    """Yield every line of the file that can be billed exactly, and every reason why others can't, by row.

    The file is opened when the first value is asked for. Blank lines are passed over. A line that is no JSON
    object can't be skipped: what is around it may be no JSON lines at all, but one document over many lines,
    of which some line would pass for a row.

    Raises:
        InvalidInput: The file can't be opened or read, is no regular file, or is empty.
    """
    with open_text(path) as file:
        rows = KeyedRowReader()
        for row, line in _physical_lines(file):
            if line is None:
                yield _lost(row, f"a line of more than {LINE_CHARACTERS_MAX} characters")
                continue
            text = line.strip(_BLANKS)
            if not text:
                continue
            if row == 1:
                try:
                    refuse_utf16(text)
                except InvalidInput as error:
                    yield _lost(row, error.reason)
                    return
            outcome = _read_row(rows, row, text)
            if isinstance(outcome, SourceLine):
                yield outcome
            else:
                yield from outcome


def _physical_lines(file: TextIO) -> Iterator[tuple[int, str | None]]:
    """Yield each line with its number; None stands for one over the limit, which is never held."""
    parts = iter(partial(file.readline, _READ_CHARACTERS), "")
    for row, part in enumerate(parts, start=1):
        if len(part) < _READ_CHARACTERS or part.endswith("\n"):
            yield row, part
            continue
        for rest in parts:
            if rest.endswith("\n"):
                break
        yield row, None


def _read_row(rows: KeyedRowReader, row: int, text: str) -> SourceLine | list[SourceProblem]:
    try:
        value = _decode(text)
    except InvalidInput as error:
        return [SourceProblem(row, None, error.reason, None)]
    except json.JSONDecodeError as error:
        return [_lost(row, f"broken JSON ({error.msg} at character {error.pos + 1})")]
    except (ValueError, ArithmeticError, RecursionError):
        return [_lost(row, "broken JSON (a number out of all bounds, or values nested too deep)")]
    if not isinstance(value, dict):
        return [_lost(row, f"a line of JSON that is no object: {echo(text)}")]
    return rows.read(row, value)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse a key that stands twice: parsers differ in which of the two amounts they would bill."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InvalidInput(f"columns duplicated: {echo(twice)}")
    return found


# Control characters inside strings are no broken line: the cell that holds one says so.
_decoder = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=Decimal, parse_constant=Decimal, strict=False
)
_scan: Callable[[str, int], tuple[object, int]] = _decoder.scan_once  # type: ignore[attr-defined] # not in the stubs


def _decode(text: str) -> object:
    # The scanner alone takes half of the time; `decode` says what is wrong where it did not come to the end.
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        end = -1
    return value if end == len(text) else _decoder.decode(text)


def _lost(row: int, reason: str) -> SourceProblem:
    return SourceProblem(row, None, reason, None, skippable=False)
