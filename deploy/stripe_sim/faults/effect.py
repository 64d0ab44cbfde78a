"""What all kinds of effects have in common."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

from deploy.stripe_sim.faults.hit import Hit, Place

SECONDS_MAX: Final = 31 * 86_400
STATUS_MAX: Final = 599


@dataclass(frozen=True, slots=True)
class Effect:
    """What a fault does. Each kind is a module of its own."""

    KIND: ClassVar[str]
    PLACES: ClassVar[tuple[Place, ...]]

    def check(self) -> str | None:
        """Return what is wrong with the values, or None."""
        return None

    def apply(self, hit: Hit, place: Place, *, books: bool) -> None:
        """Do it to a request; `books` says whether the request is executed."""
        raise NotImplementedError

    def show(self) -> dict[str, Any]:
        """Return the effect as it stands in a plan file."""
        return {"kind": self.KIND, **asdict(self)}


@dataclass(frozen=True, slots=True)
class BookingEffect(Effect):
    """An effect that leaves open whether the request was executed.

    `book` overrides the place: the request is executed (true), is not (false), or is with this probability.
    """

    book: bool | float | None = None

    def check(self) -> str | None:
        """Return what is wrong with the values, or None."""
        fine = self.book is None or is_number(self.book, 0, 1)
        return None if fine else "book is true, false or a probability"


def is_number(value: Any, low: float, high: float) -> bool:
    """Return whether a value is a number between two others."""
    return isinstance(value, int | float) and low <= value <= high


def check_status(value: Any, low: int) -> str | None:
    """Return what is wrong with a status, or None."""
    fine = isinstance(value, int) and low <= value <= STATUS_MAX
    return None if fine else f"status lies between {low} and {STATUS_MAX}"


def check_seconds(value: Any) -> str | None:
    """Return what is wrong with a duration, or None."""
    return None if is_number(value, 0, SECONDS_MAX) else f"seconds lies between 0 and {SECONDS_MAX}"
