"""Which row was the first of a customer and line: a million of them in 48 MB, and none forgotten."""

from array import array

_SLOTS_AT_FIRST = 1 << 17


class FirstRows:
    """Remembers the rows of one reading by 64 bits of a hash: a table with open addresses, at most half full.

    A dict of digests costs 130 bytes a row and this 16 to 48, and it is faster. The hash is Python's own of a
    text: SipHash under a key that each process draws. In a million rows two identities meet in it with a
    chance of 1 to 37 million; the later row is then called a duplicate, by row and out loud, and is not
    charged. Reading again, in another process, tells.
    """

    __slots__ = ("_free", "_hashes", "_mask", "_rows")

    def __init__(self) -> None:
        self._clear(_SLOTS_AT_FIRST)

    def first_row(self, customer: str, line: str, row: int) -> int:
        """Return the row (1 or more) that named this customer and line first; remember `row` if none did."""
        if not self._free:
            self._grow()
        identity = hash(f"{customer}\x1f{line}")
        hashes, rows, mask = self._hashes, self._rows, self._mask
        slot = identity & mask
        while first := rows[slot]:
            if hashes[slot] == identity:
                return first
            slot = (slot + 1) & mask
        hashes[slot] = identity
        rows[slot] = row
        self._free -= 1
        return row

    def _clear(self, slots: int) -> None:
        self._mask = slots - 1
        self._hashes = array("q", bytes(8 * slots))
        self._rows = array("q", bytes(8 * slots))
        self._free = slots // 2

    def _grow(self) -> None:
        taken_hashes, taken_rows = self._hashes, self._rows
        self._clear(2 * len(taken_rows))
        hashes, rows, mask = self._hashes, self._rows, self._mask
        for identity, row in zip(taken_hashes, taken_rows, strict=True):
            if row:
                slot = identity & mask
                while rows[slot]:
                    slot = (slot + 1) & mask
                hashes[slot] = identity
                rows[slot] = row
                self._free -= 1
