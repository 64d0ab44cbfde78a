"""Rows that bring their own column names: JSON objects, and the mappings of an entry point."""

from collections.abc import Mapping

from activities.sources import SourceLine, SourceProblem
from activities.sources.cells import read_customer
from activities.sources.columns import AMOUNT_COLUMNS, REQUIRED_COLUMNS, column_names, find_key_faults
from activities.sources.first_rows import FirstRows
from activities.sources.rows import RowReader
from activities.sources.typed_cells import text_of
from workflows.domain.errors import InvalidInput

# Rows of one source have a handful of layouts; a hostile one has a new one in each row.
_LAYOUTS_REMEMBERED_MAX = 256


class _Layout:
    """What one set of keys, in one order, means: a reader, or the fault that no value can mend."""

    __slots__ = ("fault", "has_both_amounts", "names", "padding", "reader")

    def __init__(self, keys: tuple[object, ...], seen: FirstRows) -> None:
        self.names = column_names(keys)
        absent = [name for name in REQUIRED_COLUMNS if name not in self.names]
        self.padding = [""] * len(absent)
        self.has_both_amounts = all(name in self.names for name in AMOUNT_COLUMNS)
        self.fault = find_key_faults(self.names)
        self.reader = None if self.fault else RowReader([*self.names, *absent], seen)


class KeyedRowReader:
    """Reads the rows of one source, each by its own keys. Columns that a row leaves out are empty cells."""

    def __init__(self) -> None:
        self._seen = FirstRows()
        self._layouts: dict[tuple[object, ...], _Layout] = {}

    def read(self, row: int, mapping: Mapping[object, object]) -> SourceLine | list[SourceProblem]:
        """Return the line of row `row`, or all that is wrong with it (never empty)."""
        keys = tuple(mapping)
        layout = self._layouts.get(keys) or self._learn(keys)
        if layout.reader is not None:
            return layout.reader.read_values(row, [*mapping.values(), *layout.padding])
        if layout.has_both_amounts and (fewer := _without_empty_amount(layout.names, mapping)) is not None:
            return self.read(row, fewer)
        return [SourceProblem(row, None, f"columns {layout.fault}", _customer_of(layout.names, mapping))]

    def _learn(self, keys: tuple[object, ...]) -> _Layout:
        if len(self._layouts) >= _LAYOUTS_REMEMBERED_MAX:
            self._layouts.clear()
        return self._layouts.setdefault(keys, _Layout(keys, self._seen))


def _without_empty_amount(
    names: list[str], mapping: Mapping[object, object]
) -> Mapping[object, object] | None:
    """Return the mapping without an amount that is None, where exactly one of the two is."""
    empty = [
        key
        for name, (key, value) in zip(names, mapping.items(), strict=True)
        if name in AMOUNT_COLUMNS and value is None
    ]
    return {key: mapping[key] for key in mapping if key not in empty} if len(empty) == 1 else None


def _customer_of(names: list[str], mapping: Mapping[object, object]) -> str | None:
    for name, value in zip(names, mapping.values(), strict=True):
        if name == "customer":
            try:
                return read_customer(text_of(value))
            except InvalidInput:
                return None
    return None
