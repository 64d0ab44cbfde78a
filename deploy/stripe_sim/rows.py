"""Sequences and indexes for a million rows: memory holds numbers, rows are read when they are looked at."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar, overload

RowT = TypeVar("RowT")
_SHARDS: Final = 256


class Rows(Sequence[RowT]):
    """A sequence whose rows are made by `read` from their positions."""

    __hash__ = None  # type: ignore[assignment]  # compares by its rows, which change

    def __init__(self, count: Callable[[], int], read: Callable[[int], RowT]) -> None:
        self._count = count
        self._read = read

    def __len__(self) -> int:
        return self._count()

    @overload
    def __getitem__(self, index: int) -> RowT: ...

    @overload
    def __getitem__(self, index: slice) -> list[RowT]: ...

    def __getitem__(self, index: int | slice) -> RowT | list[RowT]:
        count = self._count()
        if isinstance(index, slice):
            return [self._read(position) for position in range(*index.indices(count))]
        position = index + count if index < 0 else index
        if not 0 <= position < count:
            raise IndexError(f"row {index} of {count}")
        return self._read(position)

    def __iter__(self) -> Iterator[RowT]:
        position = 0
        while position < self._count():
            yield self._read(position)
            position += 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and list(self) == list(other)

    def __repr__(self) -> str:
        return f"Rows({list(self)!r})"


class Index:
    """Names and their numbers.

    Many small tables instead of one: growing a table of a million names would stop the world for a tenth of
    a second.
    """

    def __init__(self) -> None:
        self._shards: list[dict[str, int]] = [{} for _ in range(_SHARDS)]

    def __contains__(self, name: str) -> bool:
        return name in self._shards[hash(name) % _SHARDS]

    def __iter__(self) -> Iterator[str]:
        for shard in self._shards:
            yield from shard

    def get(self, name: str) -> int | None:
        """Return a name's number, or None."""
        return self._shards[hash(name) % _SHARDS].get(name)

    def put(self, name: str, number: int) -> None:
        """Give a name its number, for the first time or anew."""
        self._shards[hash(name) % _SHARDS][name] = number

    def drop(self, name: str) -> None:
        """Forget a name."""
        self._shards[hash(name) % _SHARDS].pop(name, None)
