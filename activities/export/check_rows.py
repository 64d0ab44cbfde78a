"""The rows of a pack held against its manifest: what they say of themselves, and what they add up to."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol

from activities.export.cells import to_major
from activities.export.columns import CHARGES, EXCEPTIONS, MANIFEST_FILE, SETTLEMENT, Column, Kind, Table
from activities.export.findings import Damaged, Finding
from activities.export.read_rows import read_rows
from activities.export.totals import ChargeTotals, SettlementTotals
from activities.spreadsheet_cells import neutral_cell

Values = Mapping[str, Any]
Sums = Iterator[tuple[str, Any, Any]]

_AMOUNTS = (
    ("amount", "currency"),
    ("gross", "settlement_currency"),
    ("fee", "settlement_currency"),
    ("net", "settlement_currency"),
)
_ELSEWHERE = {"skipped_rows": "source_row", "taken_over": "taken_over"}  # counts whose lines are exceptions


def find_in_rows(
    path: Path, entry: Values, table: Table, document: Values, rows: dict[str, int]
) -> Iterator[Finding]:
    """Yield what is wrong with the rows of one file, and put into `rows` how many could be read."""
    sums = _SUMS.get(table.name, _Nothing)()
    rows[path.name] = 0
    try:
        for number, row in read_rows(path, table):
            rows[path.name] = number
            fault = _take_in(sums, row)
            if fault is not None:
                yield Finding(path.name, fault, row=number)
                return
    except Damaged as damaged:
        yield damaged.finding
        return
    if rows[path.name] != entry["rows"]:
        yield Finding(path.name, f"it has {rows[path.name]} rows, and {entry['rows']} were written")
    if list(table.names) != entry["columns"]:
        yield Finding(path.name, "the manifest names other columns than it has")
    for what, counted, written in sums.compared(document):
        if counted != written:
            yield Finding(path.name, f"its rows do not add up to the manifest's {what}")


def find_in_counts(document: Values) -> Iterator[Finding]:
    """Yield what is wrong with the manifest's counts: they add up to the lines that were selected (I9)."""
    if document["selected"] is not None and sum(document["counts"].values()) != document["selected"]:
        yield Finding(MANIFEST_FILE, "its counts do not add up to the lines that were selected")


def _take_in(sums: "_Sums", row: Values) -> str | None:
    """Add up one row; return what it says that can't be so."""
    for name, currency in _AMOUNTS:
        if name in row and row[name] != to_major(row[f"{name}_minor"], row[currency]):
            return f"{name} and {name}_minor are not the same amount"
    if row.get("gross_minor") is not None and row["net_minor"] != row["gross_minor"] - (
        row["fee_minor"] or 0
    ):
        return "net_minor is not gross_minor less fee_minor"
    try:
        sums.add(row)
    except TypeError:
        return "a cell is empty that has a value in every row"
    return None


# --- sums ------------------------------------------------------------------------------------------------


class _Sums(Protocol):
    def add(self, row: Values) -> None: ...

    def compared(self, document: Values) -> Sums:
        """Yield what it is, what the rows add up to, and what the manifest says."""


class _Nothing:
    def add(self, row: Values) -> None:
        pass

    def compared(self, _document: Values) -> Sums:
        return iter(())


class _Charges(ChargeTotals):
    def compared(self, document: Values) -> Sums:
        counts = {name: lines for name, lines in document["counts"].items() if name not in _ELSEWHERE}
        yield "counts", dict(self.lines), counts
        yield "totals", self.as_json(), document["totals"]


class _Settlement(SettlementTotals):
    def compared(self, document: Values) -> Sums:
        written = {name: value for name, value in document["settlement"].items() if name != "requests"}
        yield "settlement", self.as_json(), written


class _Exceptions:
    def __init__(self) -> None:
        self._subjects: Counter[str] = Counter()

    def add(self, row: Values) -> None:
        self._subjects[row["subject"]] += 1

    def compared(self, document: Values) -> Sums:
        for name, subject in _ELSEWHERE.items():
            yield "counts", self._subjects[subject], document["counts"].get(name, 0)


_SUMS: Mapping[str, type[_Charges | _Settlement | _Exceptions]] = {
    CHARGES.name: _Charges,
    SETTLEMENT.name: _Settlement,
    EXCEPTIONS.name: _Exceptions,
}


# --- one table in two formats ----------------------------------------------------------------------------


def find_between(csv_path: Path, parquet_path: Path, table: Table) -> Iterator[Finding]:
    """Yield the first row in which a table's Parquet file is not what its CSV file is."""
    try:
        for left, right in zip_longest(read_rows(csv_path, table), read_rows(parquet_path, table)):
            if left is None or right is None:
                yield Finding(parquet_path.name, f"it has another number of rows than {csv_path.name}")
                return
            for column in table.columns:
                if left[1][column.name] != _as_in_csv(column, right[1][column.name]):
                    what = f"{column.name} is another than in {csv_path.name}"
                    yield Finding(parquet_path.name, what, row=left[0])
                    return
    except Damaged as damaged:
        yield damaged.finding


def _as_in_csv(column: Column, value: Any) -> Any:
    return (neutral_cell(value) or None) if column.kind is Kind.TEXT and value is not None else value
