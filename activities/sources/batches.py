"""Sources that block are read in a thread, a batch at a time."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from activities.sources import Batch, SourceLine, SourceProblem
from workflows.domain.errors import invariant

Result = TypeVar("Result")


class ReadingThread:
    """The one thread of one reading: what is opened in it is used and closed in it, as SQLite asks for."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="source")

    def begin(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Begin work that may block; whoever awaits the result gets its exception too."""
        return asyncio.get_running_loop().run_in_executor(self._executor, work)

    def leave(self, close: Callable[[], object]) -> None:
        """Close after what is under way, without waiting: a source may block for as long as it likes."""
        self._executor.submit(close)
        self._executor.shutdown(wait=False)


async def batches_of(
    values: Iterator[SourceLine | SourceProblem], rows_max: int, thread: ReadingThread | None = None
) -> AsyncGenerator[Batch, None]:
    """Yield the values of a blocking iterator, 1 to `rows_max` of them at once; close it at the end."""
    invariant(rows_max >= 1, f"a batch holds at least one row, not {rows_max}")
    thread = thread or ReadingThread()

    def take() -> Batch:
        return list(islice(values, rows_max))

    try:
        while batch := await thread.begin(take):
            yield batch
    finally:
        thread.leave(getattr(values, "close", _nothing))


def _nothing() -> None:
    """Close an iterator that has nothing to close."""
