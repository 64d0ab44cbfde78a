"""A spec names a source; opening it reads nothing yet."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from activities.sources import Batch, Source, SourceLine, SourceProblem
from activities.sources.batches import batches_of
from activities.sources.csv_file import read_csv
from activities.sources.entry_point import EntryPointSource
from activities.sources.files import sha256_of
from activities.sources.json_lines import read_json_lines
from activities.sources.parquet_file import read_parquet
from activities.sources.sql_query import SqlSource
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput

__all__ = ["STDIN", "Source", "open_source"]

STDIN = "-"
KINDS = (
    "a file that ends in .csv, .parquet, .jsonl or .ndjson (csv:FILE, parquet:FILE or jsonl:FILE where its "
    "name does not say), sql:NAME:QUERY.sql, entry:NAME[:ARGUMENT], or - for standard input"
)

Read = Callable[[Path], Iterator[SourceLine | SourceProblem]]

_FORMATS: Mapping[str, Read] = {"csv": read_csv, "parquet": read_parquet, "jsonl": read_json_lines}
_SUFFIXES = {".csv": "csv", ".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file in one of the formats."""

    spec: str
    path: Path
    _read: Read

    async def fingerprint(self) -> str:
        """Return the SHA-256 of the file's bytes. Raises InvalidInput."""
        return await asyncio.to_thread(sha256_of, self.path)

    def batches(self, rows_max: int) -> AsyncGenerator[Batch, None]:
        """Yield what is in the file. Raises InvalidInput."""
        return batches_of(self._read(self.path), rows_max)


def open_source(spec: str, environment: Mapping[str, str] = os.environ) -> Source:
    """Return the source that `spec` names; paths in it may be relative to here, or begin with ~.

    `environment` has the URLs of databases (`sql_query`).

    Raises:
        InvalidInput: There is no such kind of source; the reason lists what there is. Whether the source is
            there is found out by reading it.
    """
    if not spec.isprintable():
        raise InvalidInput(f"the source {echo(spec)} has a name that can't be printed")
    if spec == STDIN:
        raise InvalidInput("standard input can be read once, and here: it is stored as a file first")
    prefix, has_prefix, rest = spec.partition(":")
    if has_prefix and prefix == "sql":
        name, has_query, query = rest.partition(":")
        if not has_query or not query:
            raise InvalidInput(f"the source {echo(spec)} names no query: sql:NAME:QUERY.sql")
        return SqlSource(name, _absolute(query), environment)
    if has_prefix and prefix == "entry":
        name, has_argument, argument = rest.partition(":")
        return EntryPointSource(name, argument if has_argument else None)
    if has_prefix and prefix in _FORMATS:
        path = _absolute(rest)
        return FileSource(f"{prefix}:{path}", path, _FORMATS[prefix])
    path = _absolute(spec)
    kind = _SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise InvalidInput(f"the source {echo(spec)} is of no known kind; there are: {KINDS}")
    return FileSource(str(path), path, _FORMATS[kind])


def _absolute(path: str) -> Path:
    if not path:
        raise InvalidInput("the source names no file")
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidInput(f"the source {echo(path)} is no path: {error}") from error
