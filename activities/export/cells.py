"""Values as the cells of a CSV file, and back."""

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from activities.export.columns import Column, Kind
from activities.spreadsheet_cells import neutral_cell
from workflows.domain.errors import InvalidInput
from workflows.domain.money import RULES


def to_major(amount_minor: int | None, currency: str | None) -> Decimal | None:
    """Return an amount in major units, exactly; None where there is none, or the currency is unknown."""
    rule = RULES.get(currency or "")
    return None if amount_minor is None or rule is None else Decimal(amount_minor).scaleb(-rule.decimals)


def _flag(value: bool) -> str:  # noqa: FBT001 - the value is a cell
    return "true" if value else "false"


_TO_CELL: Mapping[Kind, Callable[[Any], str]] = {
    Kind.TEXT: neutral_cell,
    Kind.INTEGER: str,
    Kind.DECIMAL: "{:f}".format,
    Kind.NUMBER: repr,
    Kind.TIME: datetime.isoformat,
    Kind.FLAG: _flag,
}


def to_cell(column: Column) -> Callable[[Any], str]:
    """Return what makes a cell of a value of this column; None makes an empty one."""
    show = _TO_CELL[column.kind]
    return lambda value: "" if value is None else show(value)


def _read_flag(cell: str) -> bool:
    if cell not in {"true", "false"}:
        raise ValueError(cell)
    return cell == "true"


_READ: Mapping[Kind, Callable[[str], Any]] = {
    Kind.TEXT: str,
    Kind.INTEGER: int,
    Kind.DECIMAL: Decimal,
    Kind.NUMBER: float,
    Kind.TIME: datetime.fromisoformat,
    Kind.FLAG: _read_flag,
}


def read_cell(column: Column, cell: str) -> Any:
    """Return a cell's value; a text stays as neutral as it was written. Raises InvalidInput."""
    if not cell:
        return None
    try:
        return _READ[column.kind](cell)
    except (ValueError, InvalidOperation):
        raise InvalidInput(f"{column.name} is no {column.kind}") from None
