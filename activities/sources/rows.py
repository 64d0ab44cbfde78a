"""The one judge of rows: cells of any source become a line, or every reason why they can't."""

from collections.abc import Callable, Sequence

from activities.sources import SourceLine, SourceProblem
from activities.sources.cells import (
    LINE_DEFAULT,
    read_customer,
    read_description,
    read_line,
    read_payment_method,
    refuse_unreadable,
)
from activities.sources.first_rows import FirstRows
from activities.sources.typed_cells import RefusedCell, to_text_of
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput
from workflows.domain.money import parse_currency, parse_major, parse_minor, read_number

# Prices repeat; where every amount is another, forgetting them all now and then costs next to nothing.
_AMOUNTS_REMEMBERED_MAX = 16_384


class RowReader:
    """Reads rows of one layout. `seen` is of one reading, and of all its layouts.

    `columns` are names as `columns.column_names` returns them, without faults: `customer`, `currency` and one
    of the amounts are among them.
    """

    def __init__(self, columns: Sequence[str], seen: FirstRows) -> None:
        at = {name: position for position, name in enumerate(columns)}
        self._positions = at
        self._width = len(columns)
        self._customer_at = at["customer"]
        self._currency_at = at["currency"]
        self._amount_name = "amount" if "amount" in at else "amount_minor"
        self._amount_at = at[self._amount_name]
        self._parse_amount = parse_major if "amount" in at else parse_minor
        self._line_at = at.get("line")
        self._payment_method_at = at.get("payment_method")
        self._description_at = at.get("description")
        self._to_text = [to_text_of(name) for name in columns]
        self._amounts: dict[tuple[str, str], int] = {}
        self._first_row = seen.first_row

    def read(self, row: int, cells: Sequence[str]) -> SourceLine | list[SourceProblem]:
        """Return the line of the texts of row `row`, or all that is wrong with them (never empty)."""
        if len(cells) != self._width:
            fields = f"{len(cells)} field{'s' if len(cells) != 1 else ''}"
            return [SourceProblem(row, None, f"{fields} where the header has {self._width}", None)]
        try:
            line = self._read_line(row, cells)
        except InvalidInput:
            return self._problems(row, cells)
        first_row = self._first_row(line.customer, line.line, row)
        if first_row != row:
            return [_duplicate(row, first_row, line.customer, line.line)]
        return line

    def read_values(self, row: int, values: Sequence[object]) -> SourceLine | list[SourceProblem]:
        """Do the same with values of any type, as many as there are columns."""
        texts: list[str] = list(values)  # type: ignore[arg-type] # what is no text is replaced below
        try:
            for position, kind in enumerate(map(type, values)):
                if kind is not str:
                    texts[position] = self._to_text[position](values[position])
        except InvalidInput:
            return self._problems(row, self._texts_or_refusals(values))
        return self.read(row, texts)

    def _read_line(self, row: int, cells: Sequence[str]) -> SourceLine:
        line_at, method_at, description_at = self._line_at, self._payment_method_at, self._description_at
        currency = parse_currency(cells[self._currency_at])
        return SourceLine(
            row,
            read_customer(cells[self._customer_at]),
            LINE_DEFAULT if line_at is None else read_line(cells[line_at]),
            currency,
            self._read_amount(cells[self._amount_at], currency),
            None if method_at is None else read_payment_method(cells[method_at]),
            None if description_at is None else read_description(cells[description_at]),
        )

    def _read_amount(self, cell: str, currency: str) -> int:
        amounts = self._amounts
        amount_minor = amounts.get((cell, currency))
        if amount_minor is None:
            amount_minor = self._parse_amount(cell, currency)
            if len(amounts) >= _AMOUNTS_REMEMBERED_MAX:
                amounts.clear()
            amounts[cell, currency] = amount_minor
        return amount_minor

    def _texts_or_refusals(self, values: Sequence[object]) -> list[str | RefusedCell]:
        cells: list[str | RefusedCell] = []
        for to_text, value in zip(self._to_text, values, strict=True):
            try:
                cells.append(to_text(value))
            except InvalidInput as error:
                cells.append(RefusedCell(error.reason))
        return cells

    def _problems(self, row: int, cells: Sequence[str | RefusedCell]) -> list[SourceProblem]:
        reasons: list[tuple[str | None, str]] = []
        customer = self._try("customer", read_customer, cells, reasons)
        line = self._try("line", read_line, cells, reasons) if self._line_at is not None else LINE_DEFAULT
        currency = self._try("currency", _read_currency, cells, reasons)
        # Without a currency the decimals can't be judged, but that it is no number at all can be said.
        amount = (lambda cell: self._parse_amount(cell, currency)) if currency else read_number
        self._try(self._amount_name, _readable(amount), cells, reasons)
        self._try("payment_method", read_payment_method, cells, reasons)
        self._try("description", read_description, cells, reasons)
        if customer is not None and line is not None:
            first_row = self._first_row(customer, line, row)
            if first_row != row:
                reasons.append((None, _duplicate(row, first_row, customer, line).reason))
        return [SourceProblem(row, column, reason, customer) for column, reason in reasons]

    def _try(
        self,
        column: str,
        read: Callable[[str], object],
        cells: Sequence[str | RefusedCell],
        reasons: list[tuple[str | None, str]],
    ) -> str | None:
        position = self._positions.get(column)
        if position is None:
            return None
        cell = cells[position]
        if isinstance(cell, RefusedCell):
            reasons.append((column, cell.reason))
            return None
        try:
            value = read(cell)
        except InvalidInput as error:
            reasons.append((column, error.reason))
            return None
        return value if isinstance(value, str) else None


def _readable(read: Callable[[str], object]) -> Callable[[str], object]:
    def read_readable(cell: str) -> object:
        refuse_unreadable(cell, allowed=frozenset("\t"))
        return read(cell)

    return read_readable


_read_currency = _readable(parse_currency)


def _duplicate(row: int, first_row: int, customer: str, line: str) -> SourceProblem:
    reason = f"line {echo(line)} of customer {echo(customer)} stands in row {first_row} already"
    return SourceProblem(row, None, reason, customer)
