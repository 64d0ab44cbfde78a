"""The same rows in every form that a source may have, and what comes out of reading them."""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from activities.sources import Source, SourceLine, SourceProblem
from activities.sources.opening import open_source

Row = Mapping[str, object]
Value = SourceLine | SourceProblem

DATABASE_VARIABLE = "CHARGEONCE_SOURCE_DUES_URL"


async def read(source: Source, rows_max: int = 1000) -> list[Value]:
    """Return everything that a source yields."""
    async with aclosing(source.batches(rows_max)) as batches:
        return [value async for batch in batches for value in batch]


def problems_of(found: Iterable[Value]) -> list[SourceProblem]:
    """Only the problems."""
    return [value for value in found if isinstance(value, SourceProblem)]


def lines_of(found: Iterable[Value]) -> list[SourceLine]:
    """Only the lines."""
    return [value for value in found if isinstance(value, SourceLine)]


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Return the keys of all rows, in the order of their first appearance."""
    return list(dict.fromkeys(key for row in rows for key in row))


def write_csv(path: Path, rows: Sequence[Row]) -> str:
    """Write rows of texts, bytes that are not UTF-8 as lone surrogates, and return the spec."""
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        writer = csv.DictWriter(file, columns_of(rows), quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: "" if value is None else value for key, value in row.items()} for row in rows)
    return str(path)


def write_json_lines(path: Path, rows: Sequence[Row]) -> str:
    """Write rows as JSON, decimals digit by digit, characters as they are, and return the spec."""
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        for row in rows:
            parts = (f"{json.dumps(key)}: {json_text(value)}" for key, value in row.items())
            file.write(f"{{{', '.join(parts)}}}\n")
    return str(path)


def json_text(value: object) -> str:
    """Return a value as JSON, a decimal with all of its digits."""
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def write_parquet(path: Path, rows: Sequence[Row], kinds: Mapping[str, pa.DataType] | None = None) -> str:
    """Write rows, each column of the type its values suggest or `kinds` says, and return the spec."""
    arrays = {}
    for column in columns_of(rows):
        values = [row.get(column) for row in rows]
        if any(isinstance(value, str) for value in values):
            raw = [
                None if value is None else str(value).encode("utf-8", "surrogateescape") for value in values
            ]
            arrays[column] = pa.array(raw, pa.binary()).view(pa.string())
        else:
            arrays[column] = pa.array(values, (kinds or {}).get(column))
    parquet.write_table(pa.table(arrays), path)
    return str(path)


def write_query(path: Path, rows: Sequence[Row]) -> str:
    """Write a query whose result is the rows, each column of the type its values suggest."""
    columns = columns_of(rows)
    selects = [
        f"SELECT {number} AS n, "
        + ", ".join(f"{sql_literal(row.get(column))} AS {column}" for column in columns)
        for number, row in enumerate(rows)
    ]
    union = " UNION ALL ".join(selects)
    path.write_text(f"SELECT {', '.join(columns)} FROM ({union}) AS due ORDER BY n")
    return f"sql:dues:{path}"


def sql_literal(value: object) -> str:
    """Return a value as Postgres writes it."""
    match value:
        case None:
            return "NULL::text"
        case bool():
            return str(value)
        case int():
            return f"{value}::bigint"
        case Decimal():
            return f"'{value}'::numeric"
        case float():
            return f"'{value}'::float8"
        case list():
            return f"ARRAY{value}"
        case dict():
            return f"'{json.dumps(value)}'::jsonb"
        case _:
            return "'" + str(value).replace("'", "''") + "'::text"


def install_entry_point(folder: Path, name: str, target: str, *, distribution: str = "") -> None:
    """Install a distribution, version 1.0, that has one entry point, as an installer leaves it on disk."""
    distribution = distribution or f"{name}_source"
    information = folder / f"{distribution}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[chargeonce.sources]\n{name} = {target}\n")


def opened(spec: str, url: str = "") -> Source:
    """Open a source whose database, if it asks one, is at `url`."""
    return open_source(spec, {DATABASE_VARIABLE: url})
