'''Charges from code of one's own, installed beside ours: the entry point group `chargeonce.sources`.

The spec is `entry:NAME` or `entry:NAME:ARGUMENT`. NAME is the entry point's; ARGUMENT is any text that its
code understands. It is stored with the run and shown, so it must hold no secret.

The entry point is a callable that takes the argument, a `str` or None, and returns an iterable of mappings,
or an asynchronous one. Each mapping is a row:

* `customer`, `currency`, and one of `amount` (major units) and `amount_minor`; `payment_method`, `line` and
  `description` if there are any. A key that is left out or None is an empty cell.
* Amounts are `str`, `int` or `decimal.Decimal`. A float is refused: it is not exact.

Rows are counted from 1, and what is wrong with one is told as for any other source. They are pulled one by
one, an ordinary iterator from a thread, so it may block and need not fit into memory. A source is read more
than once, by different processes: to preview, to plan, and again if the planner dies. An ordering that stays
the same keeps the rows' numbers.

An exception ends the reading with the number of rows before it. Its text is not repeated, since it might hold
a password; raise `workflows.domain.errors.InvalidInput` to say why in words of your own.

A complete example, `dues.py` in a distribution of its own:

```python
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing


def open_dues(argument: str | None) -> Iterator[Mapping[str, object]]:
    """Yield what is due, from the SQLite file that the argument names."""
    with closing(sqlite3.connect(f"file:{argument or 'dues.db'}?mode=ro", uri=True)) as database:
        query = "SELECT customer, cents FROM dues WHERE paid = 0 ORDER BY id"
        for customer, cents in database.execute(query):
            yield {"customer": customer, "currency": "eur", "amount_minor": cents, "line": "base"}
```

and in its `pyproject.toml`:

```toml
[project.entry-points."chargeonce.sources"]
dues = "dues:open_dues"
```

Installed where the worker and the command run, it is billed from with

    chargeonce run start --period 2031-03 --source entry:dues:march.db
'''

import asyncio
import hashlib
import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import aclosing
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TypeVar

from activities.sources import Batch, SourceLine, SourceProblem
from activities.sources.batches import ReadingThread, batches_of
from activities.sources.keyed_rows import KeyedRowReader
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput, invariant

GROUP = "chargeonce.sources"
Result = TypeVar("Result")
_END = object()


@dataclass(frozen=True, slots=True)
class EntryPointSource:
    """An installed callable and what it is called with."""

    name: str
    argument: str | None

    @property
    def spec(self) -> str:
        """The text that opens this source again, where the same distribution is installed."""
        return f"entry:{self.name}" if self.argument is None else f"entry:{self.name}:{self.argument}"

    async def fingerprint(self) -> str:
        """Return a digest of the name, the argument and the version installed. Raises InvalidInput."""
        point = await asyncio.to_thread(_find, self.name)
        version = "" if point.dist is None else f"{point.dist.name} {point.dist.version}"
        argument = "" if self.argument is None else f"={self.argument}"
        identity = f"{self.name}\0{argument}\0{point.value}\0{version}"
        return hashlib.sha256(identity.encode()).hexdigest()

    async def batches(self, rows_max: int) -> AsyncGenerator[Batch, None]:
        """Yield what the code yields. Raises InvalidInput where it is not there, or fails."""
        invariant(rows_max >= 1, f"a batch holds at least one row, not {rows_max}")
        thread, rows = ReadingThread(), _Rows(self.name)
        try:
            found = await thread.begin(self._call)
        except BaseException:
            thread.leave(_nothing)
            raise
        if isinstance(found, AsyncIterable):
            thread.leave(_nothing)
            values = rows.batches_of_all(found, rows_max)
        else:
            values = batches_of(rows.read_all(found), rows_max, thread)
        async with aclosing(values):
            async for batch in values:
                yield batch

    def _call(self) -> AsyncIterable[object] | Iterable[object]:
        point = _find(self.name)
        where = "while it was loaded"
        try:
            function = point.load()
            where = "before its first row"
            found = function(self.argument)
        except Exception as error:  # noqa: BLE001 - it is anybody's code
            failure = _failure(self.name, where, error)
        else:
            return _rows_in(self.name, found)
        raise failure


class _Rows:
    """Judges what an entry point yields, and knows how far it got."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._reader = KeyedRowReader()
        self._row = 0

    def read_all(self, rows: Iterable[object]) -> Iterator[SourceLine | SourceProblem]:
        """Yield the values of an ordinary iterable, and close it at the end."""
        iterator = self._guard(iter, rows)
        try:
            while (row := self._guard(next, iterator, _END)) is not _END:
                yield from self.read(row)
        finally:
            self._guard(getattr(iterator, "close", _nothing))

    async def batches_of_all(self, rows: AsyncIterable[object], rows_max: int) -> AsyncGenerator[Batch, None]:
        """Yield the values of an asynchronous iterable in batches, and close it at the end."""
        iterator = self._guard(aiter, rows)
        batch: Batch = []
        try:
            while (row := await self._awaited(anext(iterator, _END))) is not _END:
                batch += self.read(row)
                while len(batch) >= rows_max:
                    yield batch[:rows_max]
                    del batch[:rows_max]
            if batch:
                yield batch
        finally:
            if isinstance(iterator, AsyncGenerator):
                await self._awaited(iterator.aclose())

    def read(self, row: object) -> Batch:
        """Return the values of the next row."""
        if not isinstance(row, dict):
            if not isinstance(row, Mapping):
                self._row += 1
                reason = f"a row that is no mapping but a {type(row).__name__}"
                return [SourceProblem(self._row, None, reason, None)]
            row = self._guard(dict, row)
        self._row += 1
        outcome = self._reader.read(self._row, row)
        return [outcome] if isinstance(outcome, SourceLine) else [*outcome]

    async def _awaited(self, step: Awaitable[object]) -> object:
        try:
            return await step
        except Exception as error:  # noqa: BLE001 - it is anybody's code
            failure = _failure(self._name, self._reached, error)
        raise failure

    def _guard(self, call: Callable[..., Result], *arguments: object) -> Result:
        try:
            return call(*arguments)
        except Exception as error:  # noqa: BLE001 - it is anybody's code
            failure = _failure(self._name, self._reached, error)
        # Outside of the except: what the code raised may hold a password, and is not kept as a context.
        raise failure

    @property
    def _reached(self) -> str:
        return f"after row {self._row}"


def _find(name: str) -> EntryPoint:
    installed = entry_points(group=GROUP)
    found = list(
        {
            (point.value, point.dist and point.dist.name): point for point in installed.select(name=name)
        }.values()
    )
    if len(found) > 1:
        raise InvalidInput(f"several distributions have an entry point {echo(name)} of the group {GROUP}")
    if not found:
        others = ", ".join(sorted({echo(point.name) for point in installed})) or "none"
        raise InvalidInput(
            f"no entry point {echo(name)} of the group {GROUP} is installed; there are: {others}"
        )
    return found[0]


def _rows_in(name: str, found: object) -> AsyncIterable[object] | Iterable[object]:
    if isinstance(found, AsyncIterable | Iterable) and not isinstance(found, str | bytes | Mapping):
        return found
    if inspect.iscoroutine(found):
        found.close()
    raise InvalidInput(f"entry point {echo(name)} returned no rows but a {type(found).__name__}")


def _failure(name: str, where: str, error: Exception) -> InvalidInput:
    if isinstance(error, InvalidInput):
        return InvalidInput(f"entry point {echo(name)} failed {where}: {error.reason}")
    place, trace = "", error.__traceback__
    while trace is not None:
        place = f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return InvalidInput(f"entry point {echo(name)} failed {where}: {type(error).__name__}{place}")


def _nothing() -> None:
    """Close what has nothing to close."""
