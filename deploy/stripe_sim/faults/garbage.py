"""The body is not JSON: all of it, or from its middle on."""

from dataclasses import dataclass
from typing import ClassVar, Final

from deploy.stripe_sim.faults.effect import BookingEffect
from deploy.stripe_sim.faults.hit import Canned, Hit, Place

GARBAGE: Final = b'{"id": "pi_\xff\xfe\x00 \x1b]0;'


@dataclass(frozen=True, slots=True)
class Garbage(BookingEffect):
    """Sends bytes that nobody can read, under 200 where they are the whole answer."""

    KIND: ClassVar = "garbage"
    PLACES: ClassVar = ("before", "after", "body")

    def apply(self, hit: Hit, place: Place, *, books: bool) -> None:
        """Replace the second half of the body, or all of the answer."""
        if place == "body":
            hit.garbage = hit.garbage or GARBAGE
        elif hit.canned is None:
            hit.canned = Canned(200, books, body=GARBAGE, headers={"Content-Type": "application/json"})
