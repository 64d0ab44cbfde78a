"""Charges from a Parquet file. Rows are counted from 1 through all row groups; row 0 is the schema.

Columns are named as in a CSV file. Their types may be strings, integers and decimals; floating point is
refused for the file as a whole, since no amount in it is exact. A value of any other type spoils its row.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from activities.sources import SourceLine, SourceProblem
from activities.sources.columns import column_names, find_column_faults
from activities.sources.files import readable, refuse_empty
from activities.sources.first_rows import FirstRows
from activities.sources.rows import RowReader
from activities.sources.typed_cells import NOT_EXACT
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput

if TYPE_CHECKING:
    from pyarrow import Array, DataType, Schema
    from pyarrow.parquet import ParquetFile

SCHEMA_ROW = 0
# Row groups may hold millions of rows: only so many are decoded at once, out of buffers of this size.
_ROWS_AT_ONCE = 1_000
_BUFFER_BYTES = 1 << 20


def read_parquet(path: Path) -> Iterator[SourceLine | SourceProblem]:
    """Yield every row of the file that can be billed exactly, and every reason why others can't, by row.

    The file is opened when the first value is asked for.

    Raises:
        InvalidInput: The file can't be opened or read, is no regular file, is empty or no intact Parquet.
    """
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415 - slow to import, and seldom needed

    with readable(path), _intact(path):
        refuse_empty(path)
        with ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file:
            yield from _read_rows(file)


def _read_rows(file: "ParquetFile") -> Iterator[SourceLine | SourceProblem]:
    schema = file.schema_arrow
    columns = column_names(schema.names)
    if problems := list(_schema_problems(columns, schema)):
        yield from problems
        return
    rows = RowReader(columns, FirstRows())
    row = 0
    for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, use_threads=False):
        for values in zip(*map(_values, columns, batch.columns), strict=True):
            row += 1
            outcome = rows.read_values(row, values)
            if isinstance(outcome, SourceLine):
                yield outcome
            else:
                yield from outcome


def _schema_problems(columns: list[str], schema: "Schema") -> Iterator[SourceProblem]:
    if faults := find_column_faults(columns):
        yield SourceProblem(SCHEMA_ROW, None, f"columns {faults}", None, skippable=False)
        return
    for name, kind in zip(columns, schema.types, strict=True):
        if _is_floating(kind):
            yield SourceProblem(SCHEMA_ROW, name, f"{NOT_EXACT} (it is {kind})", None, skippable=False)


def _is_floating(kind: "DataType") -> bool:
    from pyarrow import types  # noqa: PLC0415 - see above

    return bool(types.is_floating(kind.value_type if types.is_dictionary(kind) else kind))


def _values(name: str, column: "Array") -> list[object]:
    """Return the values of a column; a byte of a string that is not UTF-8 becomes a lone surrogate."""
    from pyarrow import string, types  # noqa: PLC0415 - see above

    if name == "amount" and types.is_decimal(column.type) and column.type.scale > 0:
        # The same as by way of Decimal, at a fifth of the price: the zeros of the scale mean nothing.
        texts = column.cast(string()).to_pylist()
        return [text and text.rstrip("0").rstrip(".") for text in texts]
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        from pyarrow import large_binary, large_string  # noqa: PLC0415 - see above

        values = column.dictionary_decode() if types.is_dictionary(column.type) else column
        raw = values.cast(large_string()).view(large_binary()).to_pylist()
        return [None if value is None else value.decode("utf-8", "surrogateescape") for value in raw]


@contextmanager
def _intact(path: Path) -> Iterator[None]:
    from pyarrow import ArrowException  # noqa: PLC0415 - see above

    try:
        yield
    except (ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = f"the source {str(path)!r} is no intact Parquet file: {echo(str(error))}"
        raise InvalidInput(reason) from error
