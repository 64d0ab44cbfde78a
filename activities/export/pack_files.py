"""The files of a pack: their owner's alone, hashed as they grow, on the disk once they are closed."""

import csv
import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from activities.export.audit_columns import RECORD
from activities.export.cells import to_cell
from activities.export.columns import Column, Kind, Table
from activities.export.line_digests import LineDigests

if TYPE_CHECKING:
    from pyarrow import DataType, Schema

FILE_MODE = 0o600
PARQUET_ROWS_PER_GROUP = 50_000
PARQUET_DECIMAL = (38, 3)  # Stripe has no currency with more than three decimals
_WRITE_BYTES = 1 << 20

Record = Sequence[Any]


class HashedFile(io.RawIOBase):
    """A new file that knows the size and SHA-256 of what was written to it."""

    def __init__(self, path: Path) -> None:
        """Create the file. Raises FileExistsError where there is one."""
        super().__init__()
        self.size = 0
        self._sha256 = hashlib.sha256()
        self._file = open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb", _WRITE_BYTES)  # noqa: PTH123, SIM115

    def writable(self) -> bool:
        """Say yes."""
        return True

    def write(self, data: Any) -> int:
        """Write all of it."""
        self._sha256.update(data)
        written = self._file.write(data)
        self.size += written
        return written

    def tell(self) -> int:
        """Return where the next byte goes."""
        return self.size

    def close(self) -> None:
        """Bring everything to the disk."""
        if not self.closed:
            try:
                self._file.flush()
                os.fsync(self._file.fileno())
            finally:
                self._file.close()
                super().close()

    @property
    def sha256(self) -> str:
        """The hash of everything written."""
        return self._sha256.hexdigest()


class PackFile(Protocol):
    """One file of a pack, which closes as a context manager does."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def entry(self) -> dict[str, Any]:
        """Return what the manifest says about it, once it is closed."""


class TableFile(PackFile, Protocol):
    """A file of one table."""

    def write(self, rows: Sequence[Record]) -> None:
        """Write rows, each with a value for every column."""


class _Lines:
    """A text file whose lines have digests."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.file = HashedFile(path)
        self.digests = LineDigests()

    def write_lines(self, text: str) -> None:
        """Write whole lines."""
        data = text.encode()
        self.file.write(data)
        for line in io.BytesIO(data):  # after line feeds alone, as a file is split that is read line by line
            self.digests.add(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()

    def entry(self) -> dict[str, Any]:
        """Return name, size, hash and digests."""
        return {
            "name": self.name,
            "bytes": self.file.size,
            "sha256": self.file.sha256,
            "lines": self.digests.lines,
            **self.digests.as_json(),
        }


class CsvFile(_Lines):
    """A table as CSV (RFC 4180), header first; what a spreadsheet would run is made inert and counted."""

    def __init__(self, folder: Path, table: Table) -> None:
        super().__init__(folder / f"{table.name}.csv")
        self._table = table
        self._cells = [to_cell(column) for column in table.columns]
        self._texts = [at for at, column in enumerate(table.columns) if column.kind is Kind.TEXT]
        self.rows = 0
        self.neutralised = 0
        self._write_cells([list(table.names)])

    def write(self, rows: Sequence[Record]) -> None:
        """Write rows, each with a value for every column."""
        written = [[show(value) for show, value in zip(self._cells, row, strict=True)] for row in rows]
        for row, cells in zip(rows, written, strict=True):
            self.neutralised += sum(row[at] is not None and row[at] != cells[at] for at in self._texts)
        self.rows += len(rows)
        self._write_cells(written)

    def _write_cells(self, rows: Iterable[Sequence[str]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text).writerows(rows)
        self.write_lines(text.getvalue())

    def entry(self) -> dict[str, Any]:
        """Return name, rows, columns, size, hash, cells that were made inert, and digests."""
        entry = super().entry()
        return {
            "name": entry.pop("name"),
            "rows": self.rows,
            "columns": list(self._table.names),
            "neutralised_cells": self.neutralised,
            **entry,
        }


class ParquetFile:
    """A table as Parquet; every text is as it is in the ledger."""

    def __init__(self, folder: Path, table: Table) -> None:
        from pyarrow.parquet import ParquetWriter  # noqa: PLC0415 - slow to import, and only on request

        self._table = table
        self._schema = parquet_schema(table)
        self._name = f"{table.name}.parquet"
        self._file = HashedFile(folder / self._name)
        self._writer = ParquetWriter(self._file, self._schema, compression="zstd")
        self._waiting: list[Record] = []
        self.rows = 0

    def write(self, rows: Sequence[Record]) -> None:
        """Write rows, each with a value for every column."""
        self.rows += len(rows)
        self._waiting += rows
        if len(self._waiting) >= PARQUET_ROWS_PER_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        from pyarrow import array, record_batch  # noqa: PLC0415 - see above

        columns = list(zip(*self._waiting, strict=True)) or [()] * len(self._schema)
        arrays = [array(values, type=kind) for values, kind in zip(columns, self._schema.types, strict=True)]
        self._writer.write_batch(record_batch(arrays, schema=self._schema))
        self._waiting = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                if self._waiting or not self.rows:
                    self._write_group()
                self._writer.close()
            else:
                with suppress(Exception):  # the folder is about to be removed, and the first error is the one
                    self._writer.close()
        finally:
            self._file.close()

    def entry(self) -> dict[str, Any]:
        """Return name, rows, columns, size and hash."""
        return {
            "name": self._name,
            "rows": self.rows,
            "columns": list(self._table.names),
            "bytes": self._file.size,
            "sha256": self._file.sha256,
        }


class JsonLinesFile(_Lines):
    """One JSON object a line."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.rows: Counter[str] = Counter()

    def write_all(self, name: str, records: Iterable[Mapping[str, Any]]) -> None:
        """Write a line for each record, as one of its name."""
        lines = [f"{to_json_line({RECORD: name, **record})}\n" for record in records]
        self.rows[name] += len(lines)
        self.write_lines("".join(lines))

    def entry(self) -> dict[str, Any]:
        """Return name, rows, rows by record, size, hash and digests."""
        entry = super().entry()
        by_record = dict(self.rows)
        return {"name": entry.pop("name"), "rows": self.rows.total(), "rows_by_record": by_record, **entry}


class TextFile(_Lines):
    """A text for people."""


def to_json_line(record: Mapping[str, Any]) -> str:
    """Return one line of JSON; times are in ISO 8601."""
    return json.dumps(record, default=_plain, ensure_ascii=False)


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def parquet_schema(table: Table) -> "Schema":
    """Return the schema of a table's Parquet file."""
    from pyarrow import field, schema  # noqa: PLC0415 - see above

    return schema([field(column.name, _parquet_type(column)) for column in table.columns])


def _parquet_type(column: Column) -> "DataType":
    import pyarrow as pa  # noqa: PLC0415 - see above

    match column.kind:
        case Kind.INTEGER:
            return pa.int64()
        case Kind.DECIMAL:
            return pa.decimal128(*PARQUET_DECIMAL)
        case Kind.NUMBER:
            return pa.float64()
        case Kind.TIME:
            return pa.timestamp("us", tz="UTC")
        case Kind.FLAG:
            return pa.bool_()
        case _:
            return pa.string()
