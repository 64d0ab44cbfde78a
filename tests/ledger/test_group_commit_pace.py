import asyncio
from collections.abc import Sequence

from activities.ledger.group_commit import FULL_BATCH, GATHER_SECONDS, GroupCommit


class Writes:
    """A flush that notes its batches, and when each began."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.began_seconds: list[float] = []

    async def flush(self, items: Sequence[str]) -> list[str]:
        """Answer each item in capitals."""
        self.began_seconds.append(asyncio.get_running_loop().time())
        self.batches.append(list(items))
        return [item.upper() for item in items]


def commits_of(writes: Writes) -> GroupCommit[str, str]:
    """Group commits whose batches `writes` takes; an item is its own subject."""
    return GroupCommit(writes.flush, subject=lambda item: item)


async def test_nobody_waits_for_company_without_load() -> None:
    """The first item after a pause is written by itself, at once."""
    writes = Writes()
    loop = asyncio.get_running_loop()
    submitted_seconds = loop.time()
    assert await commits_of(writes).submit("a") == "A"
    assert writes.began_seconds[0] - submitted_seconds < GATHER_SECONDS


async def test_whoever_comes_soon_after_shares_the_next_write() -> None:
    """Items that come while a write has just begun gather for a moment and are written together."""
    writes = Writes()
    commits = commits_of(writes)
    await commits.submit("first")
    results = await asyncio.gather(*(commits.submit(f"item{number}") for number in range(10)))
    assert results == [f"ITEM{number}" for number in range(10)]
    assert [len(batch) for batch in writes.batches] == [1, 10]
    assert writes.began_seconds[1] - writes.began_seconds[0] >= GATHER_SECONDS * 0.9


async def test_a_full_batch_does_not_wait() -> None:
    """As soon as a batch is full it is written, however short ago the last one was."""
    writes = Writes()
    commits = commits_of(writes)
    await commits.submit("first")
    await asyncio.gather(*(commits.submit(f"item{number}") for number in range(FULL_BATCH)))
    assert [len(batch) for batch in writes.batches] == [1, FULL_BATCH]
    assert writes.began_seconds[1] - writes.began_seconds[0] < GATHER_SECONDS
