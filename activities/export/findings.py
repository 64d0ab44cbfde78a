"""What is wrong with a closing pack, and where."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a pack that is not what was written. `row` counts from 1 below the header."""

    file: str
    what: str
    line: int | None = None
    row: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    def as_text(self) -> str:
        """Return one line for people."""
        places = [f"{name} {at}" for name, at in (("line", self.line), ("row", self.row)) if at is not None]
        return f"{', '.join([self.file, *places])}: {self.what}"


class Damaged(Exception):
    """A file can't be read on from here."""

    def __init__(self, file: str, what: str, *, line: int | None = None, row: int | None = None) -> None:
        super().__init__(what)
        self.finding = Finding(file, what, line=line, row=row)
