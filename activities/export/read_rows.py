"""The rows of a pack's tables, read back. What can't be read raises Damaged, with its row."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from activities.export.cells import read_cell
from activities.export.columns import Table
from activities.export.findings import Damaged
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput

_ROWS_AT_ONCE = 10_000
_FIELD_CHARACTERS_MAX = 16 * 1024 * 1024

NumberedRow = tuple[int, dict[str, Any]]


def read_rows(path: Path, table: Table) -> Iterator[NumberedRow]:
    """Yield the rows of a file with their numbers, from 1; texts of CSV as neutral as they are there.

    Raises:
        Damaged: There is a row that can't be one of this table.
    """
    return _read_csv(path, table) if path.suffix == ".csv" else _read_parquet(path, table)


def _read_csv(path: Path, table: Table) -> Iterator[NumberedRow]:
    for number, cells in _read_cells(path, table):
        try:
            yield (
                number,
                {
                    column.name: read_cell(column, cell)
                    for column, cell in zip(table.columns, cells, strict=True)
                },
            )
        except InvalidInput as fault:
            raise Damaged(path.name, str(fault), row=number) from None


def _read_cells(path: Path, table: Table) -> Iterator[tuple[int, list[str]]]:
    number = 0
    csv.field_size_limit(_FIELD_CHARACTERS_MAX)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
            if next(reader, None) != list(table.names):
                raise Damaged(path.name, "its header has other columns than were written", line=1)
            for number, cells in enumerate(reader, start=1):
                if len(cells) != len(table.columns):
                    what = f"it has {len(cells)} cells, and there are {len(table.columns)} columns"
                    raise Damaged(path.name, what, row=number)
                yield number, cells
    except (csv.Error, UnicodeDecodeError):
        raise Damaged(path.name, "it can't be read as CSV in UTF-8", row=number + 1) from None


def _read_parquet(path: Path, table: Table) -> Iterator[NumberedRow]:
    from pyarrow import ArrowException  # noqa: PLC0415 - slow to import, and seldom needed
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415 - see above

    from activities.export.pack_files import parquet_schema  # noqa: PLC0415 - see above

    number = 0
    try:
        with ParquetFile(path) as file:
            if not file.schema_arrow.equals(parquet_schema(table)):
                raise Damaged(path.name, "it has other columns than were written")
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                for values in batch.to_pylist():
                    number += 1
                    yield number, values
    except (ArrowException, OSError) as error:
        raise Damaged(path.name, f"it can't be read: {echo(str(error))}", row=number + 1) from None
