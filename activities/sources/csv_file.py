"""Charges from a CSV file, one record at a time.

UTF-8 with or without a byte order mark, LF or CRLF, comma or semicolon (whichever the header line holds more
of). Columns: `customer`, `currency`, exactly one of `amount` (decimal, major units) and
`amount_minor`; optional `payment_method`, `line`, `description`.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from activities.sources import SourceLine, SourceProblem
from activities.sources.csv_rows import read_header
from activities.sources.files import open_text, sha256_of
from activities.sources.first_rows import FirstRows
from activities.sources.physical_lines import (
    RECORD_CHARACTERS_MAX,
    RECORD_LINES_MAX,
    PhysicalLines,
    RecordTooLong,
)
from activities.sources.rows import RowReader
from workflows.domain.errors import InvalidInput

__all__ = ["read_csv", "sha256_of"]


def read_csv(path: Path) -> Iterator[SourceLine | SourceProblem]:
    """Yield every line of the file that can be billed exactly, and every reason why others can't, by row.

    The file is opened when the first value is asked for. Blank lines are passed over. Of rows with the same
    customer and line, the first is the line and each later one a problem.

    Raises:
        InvalidInput: The file can't be opened or read, is no regular file, or is empty.
    """
    with open_text(path) as file:
        yield from _read_records(file, path)


def _read_records(file: TextIO, path: Path) -> Iterator[SourceLine | SourceProblem]:
    lines = PhysicalLines(file)
    try:
        header = read_header(next(lines))
    except StopIteration:
        raise InvalidInput(f"the source {str(path)!r} is empty") from None
    except RecordTooLong:
        yield _lost(1, f"the header is longer than {RECORD_CHARACTERS_MAX} characters")
        return
    except InvalidInput as error:
        yield _lost(1, error.reason)
        return
    rows = RowReader(header.columns, FirstRows())
    records = csv.reader(lines, delimiter=header.delimiter, strict=True)
    while True:
        lines.begin_record()
        try:
            record = next(records)
        except StopIteration:
            return
        except (csv.Error, RecordTooLong) as error:
            yield _lost(lines.row, _reason_of(error))
            lines.give_up_record()
            continue
        if len(record) > 1 or (record and record[0].strip()):
            outcome = rows.read(lines.row, record)
            if isinstance(outcome, SourceLine):
                yield outcome
            else:
                yield from outcome


def _reason_of(error: Exception) -> str:
    if isinstance(error, RecordTooLong):
        return (
            f"a record of more than {RECORD_CHARACTERS_MAX} characters or {RECORD_LINES_MAX} lines: "
            "a quote is probably never closed"
        )
    if str(error).startswith("new-line character"):
        return "a carriage return inside a field without quotes"
    return f"broken quoting ({error})"


def _lost(row: int, reason: str) -> SourceProblem:
    return SourceProblem(row, None, reason, None, skippable=False)
