"""Digests of single lines, or of small groups of them: which line is not what was written?

The SHA-256 of a file says that something is wrong, and these say where. While a file has few lines there is
one for each; of a long file, neighbours are joined two by two, so that their number never passes DIGESTS_MAX.
"""

import hashlib
from collections.abc import Iterable, Sequence

DIGEST_BYTES = 4  # to find a line, not to trust it
DIGESTS_MAX = 4_096  # even, so that a full list can be joined two by two


class LineDigests:
    """Takes in the lines of a file one after the other."""

    def __init__(self, *, lines_per_digest: int = 1, may_grow: bool = True) -> None:
        """Begin.

        Args:
            lines_per_digest: A power of two.
            may_grow: Whether lines are joined when there are many; no where they are compared with digests
                that were made of so many lines each.
        """
        self.lines = 0
        self._per_digest = lines_per_digest
        self._may_grow = may_grow
        self._digests: list[bytes] = []
        self._rest: list[bytes] = []

    def add(self, line: bytes) -> None:
        """Take in one more line, with its end."""
        self.lines += 1
        self._rest.append(_digest(line))
        if len(self._rest) == self._per_digest:
            self._digests.append(_join_all(self._rest))
            self._rest = []
            if self._may_grow and len(self._digests) == DIGESTS_MAX:
                self._digests = list(_join_pairs(self._digests))
                self._per_digest *= 2

    def as_json(self) -> dict[str, object]:
        """Return lines per digest, and the digests as one hexadecimal text."""
        return {"lines_per_digest": self._per_digest, "digests": b"".join(self._all()).hex()}

    def first_difference(self, digests: str) -> tuple[int, int] | None:
        """Return the first and last line, from 1, of where this differs from what `as_json` has given.

        None where it does not, as far as these digests tell.
        """
        now = b"".join(self._all()).hex()
        width = 2 * DIGEST_BYTES
        for at in range(0, max(len(now), len(digests)), width):
            if now[at : at + width] != digests[at : at + width]:
                first = at // width * self._per_digest + 1
                return first, first + self._per_digest - 1
        return None

    def _all(self) -> list[bytes]:
        return [*self._digests, _join_all(self._rest)] if self._rest else self._digests


def _digest(part: bytes) -> bytes:
    return hashlib.sha256(part).digest()[:DIGEST_BYTES]


def _join_pairs(digests: Sequence[bytes]) -> Iterable[bytes]:
    for at in range(0, len(digests), 2):
        yield _digest(b"".join(digests[at : at + 2]))


def _join_all(digests: Sequence[bytes]) -> bytes:
    joined = list(digests)
    while len(joined) > 1:
        joined = list(_join_pairs(joined))
    return joined[0]
