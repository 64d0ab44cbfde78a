"""What a fault plan does to one request, as the wire carries it out."""

from dataclasses import dataclass, field
from typing import Final, Literal

Place = Literal["before", "after", "body"]


@dataclass(frozen=True, slots=True)
class Ending:
    """The connection ends without a whole answer: closed, or reset.

    `place` is where: before execution, after it, or in the middle of the body.
    """

    how: Literal["closed", "reset"]
    place: Place


@dataclass(frozen=True, slots=True)
class Canned:
    """An answer that stands in for the real one.

    `books` says whether the request is executed all the same, `stored` whether the key remembers this answer.
    `body` is what is sent word for word; without one the answer is an error in Stripe's shape.
    """

    status: int
    books: bool
    stored: bool = False
    code: str | None = None
    message: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(slots=True)
class Hit:
    """Delays add up; of endings, canned answers and postponements the first in the plan wins.

    `hold_seconds` and `late_seconds` postpone the execution: with the key in use all the while, or behind a
    stored error. `stall_seconds` and `drip_seconds` slow down the body, `garbage` replaces its second half.
    """

    names: tuple[str, ...] = ()
    delay_before_seconds: float = 0.0
    delay_after_seconds: float = 0.0
    stall_seconds: float = 0.0
    drip_seconds: float = 0.0
    garbage: bytes | None = None
    ending: Ending | None = None
    canned: Canned | None = None
    hold_seconds: float | None = None
    late_seconds: float | None = None

    @property
    def is_early(self) -> bool:
        """Whether nothing is looked at: the connection ends, or an error that is not stored is all."""
        if self.ending is not None and self.ending.place == "before":
            return True
        return self.canned is not None and not self.canned.books and not self.canned.stored

    @property
    def skips_booking(self) -> bool:
        """Whether a stored error takes the place of the execution."""
        return self.canned is not None and not self.canned.books


NO_HIT: Final = Hit()
