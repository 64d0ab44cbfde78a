"""Charges from a query on any Postgres. Records are counted from 1; row 0 is the columns of the result.

The spec is `sql:NAME:path/to/query.sql`. NAME says where the URL of the database stands, in the environment
of each process that reads: `sql:BILLING:due.sql` asks `CHARGEONCE_SOURCE_BILLING_URL`. The URL never is in a
spec, an error, or the ledger.

The file holds one SELECT whose columns are named as those of a CSV file, of the types text, integer and
numeric. It runs in a read-only transaction over one snapshot. Whether the same rows come again is its
author's business: an ORDER BY over something unique keeps the rows' numbers, and the plan's hash tells
whether two plans agree.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from activities.ledger.source_query import OpenQuery, open_query
from activities.sources import Batch, SourceLine, SourceProblem
from activities.sources.columns import column_names, find_column_faults
from activities.sources.files import readable
from activities.sources.first_rows import FirstRows
from activities.sources.rows import RowReader
from activities.sources.typed_cells import NOT_EXACT
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput, RefusedToStart, invariant

COLUMNS_ROW = 0
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}", re.ASCII)
_FLOATING_TYPES = frozenset({"float4", "float8"})


@dataclass(frozen=True, slots=True)
class SqlSource:
    """A query file and the name of the database that it asks."""

    name: str
    path: Path
    _environment: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidInput(
                f"a source's database is named by letters, digits and underscores, not {echo(self.name)}"
            )

    @property
    def spec(self) -> str:
        """The text that opens this source again."""
        return f"sql:{self.name}:{self.path}"

    @property
    def variable(self) -> str:
        """The name of the environment variable that holds the URL."""
        return f"CHARGEONCE_SOURCE_{self.name.upper()}_URL"

    async def fingerprint(self) -> str:
        """Return the SHA-256 of the database's name and the query's text. Raises InvalidInput."""
        query = await asyncio.to_thread(_read_query, self.path)
        return hashlib.sha256(f"{self.name.upper()}\0{query}".encode()).hexdigest()

    async def batches(self, rows_max: int) -> AsyncGenerator[Batch, None]:
        """Yield the result, one connection for each reading.

        Raises:
            InvalidInput: The file can't be read, or the query fails.
            RefusedToStart: The URL is not set, or the database can't be reached.
        """
        invariant(rows_max >= 1, f"a batch holds at least one row, not {rows_max}")
        query = await asyncio.to_thread(_read_query, self.path)
        url = self._environment.get(self.variable, "")
        if not url:
            raise RefusedToStart(f"{self.variable} is not set: it holds the URL of source {self.name}")
        async with open_query(url, query, source=self.name) as opened:
            if problems := _column_problems(opened):
                yield problems
                return
            rows = RowReader(column_names(column.name for column in opened.columns), FirstRows())
            row = 0
            while records := await opened.fetch(rows_max):
                batch: Batch = []
                for values in records:
                    row += 1
                    outcome = rows.read_values(row, values)
                    if isinstance(outcome, SourceLine):
                        batch.append(outcome)
                    else:
                        batch.extend(outcome)
                yield batch


def _read_query(path: Path) -> str:
    with readable(path):
        try:
            return path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidInput(f"the query {str(path)!r} is not UTF-8") from error


def _column_problems(opened: OpenQuery) -> Batch:
    names = column_names(column.name for column in opened.columns)
    if faults := find_column_faults(names):
        return [SourceProblem(COLUMNS_ROW, None, f"columns {faults}", None, skippable=False)]
    return [
        SourceProblem(COLUMNS_ROW, name, f"{NOT_EXACT} (it is {column.type_name})", None, skippable=False)
        for name, column in zip(names, opened.columns, strict=True)
        if column.type_name in _FLOATING_TYPES
    ]
