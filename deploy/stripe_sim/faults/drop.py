"""The connection is closed in good order, without an answer or in the middle of one."""

from dataclasses import dataclass
from typing import ClassVar

from deploy.stripe_sim.faults.effect import BookingEffect
from deploy.stripe_sim.faults.hit import Ending, Hit, Place


@dataclass(frozen=True, slots=True)
class Drop(BookingEffect):
    """Ends the connection as a proxy does that gives up."""

    KIND: ClassVar = "drop"
    PLACES: ClassVar = ("before", "after", "body")

    def apply(self, hit: Hit, place: Place, *, books: bool) -> None:
        """Close the connection, unless another fault ends it already."""
        if hit.ending is None:
            hit.ending = Ending("closed", "body" if place == "body" else "after" if books else "before")
