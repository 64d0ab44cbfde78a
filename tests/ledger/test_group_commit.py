"""Group commit: who shares a transaction with whom, and whose failure is whose."""

import asyncio
from collections.abc import Sequence

import asyncpg
import pytest

from activities.ledger.group_commit import GroupCommit
from workflows.domain.errors import InvariantViolation

Item = tuple[str, int]


class Ledger:
    """Remembers its batches, holds each until it is let go, and fails for the items it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[Item]] = []
        self.failures: dict[Item, Exception] = {}
        self.open = asyncio.Event()
        self.open.set()

    async def flush(self, items: Sequence[Item]) -> list[str]:
        """Return one result per item, once the batch is let go."""
        self.batches.append(list(items))
        await self.open.wait()
        for item in items:
            if item in self.failures:
                raise self.failures[item]
        return [f"{subject}{number}" for subject, number in items]


def group_commit(ledger: Ledger, *, batch_size_max: int = 256) -> GroupCommit[Item, str]:
    """Return a group commit whose subjects are the items' names."""
    return GroupCommit(ledger.flush, subject=lambda item: item[0], batch_size_max=batch_size_max)


async def gather(group: GroupCommit[Item, str], *items: Item) -> list[str | BaseException]:
    """Submit all items at once and return what each got."""
    return await asyncio.gather(*(group.submit(item) for item in items), return_exceptions=True)


async def test_nobody_waits_for_company() -> None:
    """A single item is a batch of one, at once."""
    ledger = Ledger()
    assert await group_commit(ledger).submit(("a", 1)) == "a1"
    assert ledger.batches == [[("a", 1)]]


async def test_who_comes_during_a_flush_shares_the_next_one() -> None:
    """One flush runs at a time; who comes meanwhile is in the one after, with a result of their own."""
    ledger = Ledger()
    group = group_commit(ledger)
    ledger.open.clear()
    first = asyncio.create_task(group.submit(("a", 1)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later = [asyncio.create_task(group.submit((name, 2))) for name in "bcd"]
    await asyncio.sleep(0)
    assert ledger.batches == [[("a", 1)]]
    ledger.open.set()
    assert await asyncio.gather(first, *later) == ["a1", "b2", "c2", "d2"]
    assert ledger.batches == [[("a", 1)], [("b", 2), ("c", 2), ("d", 2)]]


async def test_one_subject_is_in_a_batch_once() -> None:
    """Two writes of one charge go one after the other, in the order of their coming."""
    ledger = Ledger()
    assert await gather(group_commit(ledger), ("a", 1), ("a", 2), ("b", 3), ("a", 4)) == [
        "a1",
        "a2",
        "b3",
        "a4",
    ]
    assert ledger.batches == [[("a", 1), ("b", 3)], [("a", 2)], [("a", 4)]]


async def test_batches_have_a_size() -> None:
    """What does not fit waits for the next batch, in order."""
    ledger = Ledger()
    items = [(name, 1) for name in "abcde"]
    await gather(group_commit(ledger, batch_size_max=2), *items)
    assert ledger.batches == [items[:2], items[2:4], items[4:]]


@pytest.mark.parametrize(
    "failure",
    [asyncpg.CheckViolationError("no transition"), InvariantViolation("no"), asyncpg.DeadlockDetectedError()],
    ids=lambda failure: type(failure).__name__,
)
async def test_one_bad_row_fails_alone(failure: Exception) -> None:
    """The server rolled the batch back: each item is tried alone, and only the bad one hears of it."""
    ledger = Ledger()
    ledger.failures[("b", 2)] = failure
    results = await gather(group_commit(ledger), ("a", 1), ("b", 2), ("c", 3))
    assert results == ["a1", failure, "c3"]


async def test_an_unexpected_failure_reaches_everybody_in_the_batch() -> None:
    """What is no answer of the database (the commit may have happened) is not tried again here."""
    ledger = Ledger()
    failure = ConnectionResetError()
    ledger.failures[("b", 2)] = failure
    results = await gather(group_commit(ledger), ("a", 1), ("b", 2))
    assert results == [failure, failure]
    assert len(ledger.batches) == 1


async def test_after_a_failure_the_next_batch_goes_on() -> None:
    """A failed flush leaves nothing behind that would stop later ones."""
    ledger = Ledger()
    group = group_commit(ledger)
    ledger.failures[("a", 1)] = ConnectionResetError()
    await gather(group, ("a", 1))
    assert await group.submit(("a", 2)) == "a2"


async def test_a_caller_who_leaves_takes_nobody_with_them() -> None:
    """A cancelled submitter's write may still happen; the others of the batch get their results."""
    ledger = Ledger()
    group = group_commit(ledger)
    ledger.open.clear()
    leaving, staying = (asyncio.create_task(group.submit((name, 1))) for name in "ab")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    leaving.cancel()
    ledger.open.set()
    assert await staying == "b1"
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert ledger.batches == [[("a", 1), ("b", 1)]]
