"""The header of a CSV file decides how its records are read."""

import csv
from dataclasses import dataclass

from activities.sources.columns import column_names, find_column_faults
from activities.sources.files import refuse_utf16
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Header:
    """The columns in their order, and what separates them."""

    delimiter: str
    columns: tuple[str, ...]


def read_header(text: str) -> Header:
    """Read the first physical line of a file.

    Raises:
        InvalidInput: Not UTF-8, or columns unknown, duplicated or missing; the reason names them all.
    """
    refuse_utf16(text)
    delimiter = ";" if text.count(";") > text.count(",") else ","
    try:
        columns = column_names(next(csv.reader([text], delimiter=delimiter, strict=True)))
    except (csv.Error, StopIteration) as error:
        raise InvalidInput(f"the header {echo(text)} can't be read as CSV") from error
    if faults := find_column_faults(columns):
        raise InvalidInput(f"header columns {faults}")
    return Header(delimiter, tuple(columns))
