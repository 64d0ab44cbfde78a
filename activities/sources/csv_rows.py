"""A header decides how rows are read; a record becomes a line, or every reason why it can't."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from activities.sources import SourceLine, SourceProblem
from activities.sources.cells import (
    LINE_DEFAULT,
    read_customer,
    read_description,
    read_line,
    read_payment_method,
    refuse_unreadable,
)
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput
from workflows.domain.money import parse_currency, parse_major, parse_minor, read_number

REQUIRED_COLUMNS = ("customer", "currency")
AMOUNT_COLUMNS = ("amount", "amount_minor")
OPTIONAL_COLUMNS = ("payment_method", "line", "description")
_COLUMNS = frozenset(REQUIRED_COLUMNS + AMOUNT_COLUMNS + OPTIONAL_COLUMNS)
_UTF16_MARKS = ("\udcff\udcfe", "\udcfe\udcff")


@dataclass(frozen=True, slots=True)
class Header:
    """Where each column stands, and what separates them."""

    delimiter: str
    positions: dict[str, int]


def read_header(text: str) -> Header:
    """Read the first physical line of a file.

    Raises:
        InvalidInput: Not UTF-8, or columns unknown, duplicated or missing; the reason names them all.
    """
    if text.startswith(_UTF16_MARKS) or "\0" in text:
        raise InvalidInput("the file is not UTF-8 but looks like UTF-16: save it as UTF-8")
    delimiter = ";" if text.count(";") > text.count(",") else ","
    try:
        names = [name.strip().lower() for name in next(csv.reader([text], delimiter=delimiter, strict=True))]
    except (csv.Error, StopIteration) as error:
        raise InvalidInput(f"the header {echo(text)} can't be read as CSV") from error
    unknown = [echo(name) for name in names if name not in _COLUMNS]
    duplicated = [name for name in sorted(_COLUMNS) if names.count(name) > 1]
    missing = [name for name in REQUIRED_COLUMNS if name not in names]
    amounts = [name for name in AMOUNT_COLUMNS if name in names]
    faults = [
        f"{fault} {', '.join(columns[:10])}"
        for fault, columns in (("unknown:", unknown), ("duplicated:", duplicated), ("missing:", missing))
        if columns
    ]
    if len(amounts) != 1:
        faults.append(
            f"exactly one of amount and amount_minor is needed, not {' and '.join(amounts) or 'none'}"
        )
    if faults:
        raise InvalidInput(f"header columns {'; '.join(faults)}")
    return Header(delimiter, {name: position for position, name in enumerate(names)})


class RowReader:
    """Reads the records of one file and remembers which (customer, line) it has seen.

    The memory is one 16-byte digest and one row number for each record, about 130 bytes together: 1,000,000
    rows cost 130 MB while they are read.
    """

    def __init__(self, header: Header) -> None:
        at = header.positions
        self._positions = at
        self._width = len(at)
        self._customer_at = at["customer"]
        self._currency_at = at["currency"]
        self._amount_name = "amount" if "amount" in at else "amount_minor"
        self._amount_at = at[self._amount_name]
        self._parse_amount = parse_major if "amount" in at else parse_minor
        self._line_at = at.get("line")
        self._payment_method_at = at.get("payment_method")
        self._description_at = at.get("description")
        self._row_of_identity: dict[bytes, int] = {}

    def read(self, row: int, record: Sequence[str]) -> SourceLine | list[SourceProblem]:
        """Return the line of a record that begins at `row`, or all that is wrong with it (never empty)."""
        if len(record) != self._width:
            fields = f"{len(record)} field{'s' if len(record) != 1 else ''}"
            return [SourceProblem(row, None, f"{fields} where the header has {self._width}", None)]
        try:
            line = self._read_line(row, record)
        except InvalidInput:
            return self._problems(row, record)
        first_row = self._first_row(line.customer, line.line, row)
        if first_row != row:
            return [_duplicate(row, first_row, line.customer, line.line)]
        return line

    def _read_line(self, row: int, record: Sequence[str]) -> SourceLine:
        line_at, method_at, description_at = self._line_at, self._payment_method_at, self._description_at
        currency = parse_currency(record[self._currency_at])
        return SourceLine(
            row,
            read_customer(record[self._customer_at]),
            LINE_DEFAULT if line_at is None else read_line(record[line_at]),
            currency,
            self._parse_amount(record[self._amount_at], currency),
            None if method_at is None else read_payment_method(record[method_at]),
            None if description_at is None else read_description(record[description_at]),
        )

    def _problems(self, row: int, record: Sequence[str]) -> list[SourceProblem]:
        reasons: list[tuple[str | None, str]] = []
        customer = self._try("customer", read_customer, record, reasons)
        line = self._try("line", read_line, record, reasons) if self._line_at is not None else LINE_DEFAULT
        currency = self._try("currency", _read_currency, record, reasons)
        # Without a currency the decimals can't be judged, but that it is no number at all can be said.
        amount = (lambda cell: self._parse_amount(cell, currency)) if currency else read_number
        self._try(self._amount_name, _readable(amount), record, reasons)
        self._try("payment_method", read_payment_method, record, reasons)
        self._try("description", read_description, record, reasons)
        if customer is not None and line is not None:
            first_row = self._first_row(customer, line, row)
            if first_row != row:
                reasons.append((None, _duplicate(row, first_row, customer, line).reason))
        return [SourceProblem(row, column, reason, customer) for column, reason in reasons]

    def _try(
        self,
        column: str,
        read: Callable[[str], object],
        record: Sequence[str],
        reasons: list[tuple[str | None, str]],
    ) -> str | None:
        position = self._positions.get(column)
        if position is None:
            return None
        try:
            value = read(record[position])
        except InvalidInput as error:
            reasons.append((column, error.reason))
            return None
        return value if isinstance(value, str) else None

    def _first_row(self, customer: str, line: str, row: int) -> int:
        digest = blake2b(f"{customer}\x1f{line}".encode(), digest_size=16).digest()
        return self._row_of_identity.setdefault(digest, row)


def _readable(read: Callable[[str], object]) -> Callable[[str], object]:
    def read_readable(cell: str) -> object:
        refuse_unreadable(cell, allowed=frozenset("\t"))
        return read(cell)

    return read_readable


_read_currency = _readable(parse_currency)


def _duplicate(row: int, first_row: int, customer: str, line: str) -> SourceProblem:
    reason = f"line {echo(line)} of customer {echo(customer)} stands in row {first_row} already"
    return SourceProblem(row, None, reason, customer)
