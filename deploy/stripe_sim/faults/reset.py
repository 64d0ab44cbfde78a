"""The connection is reset (RST), without an answer or in the middle of one."""

from dataclasses import dataclass
from typing import ClassVar

from deploy.stripe_sim.faults.effect import BookingEffect
from deploy.stripe_sim.faults.hit import Ending, Hit, Place


@dataclass(frozen=True, slots=True)
class Reset(BookingEffect):
    """Ends the connection as a crashed host or a firewall does."""

    KIND: ClassVar = "reset"
    PLACES: ClassVar = ("before", "after", "body")

    def apply(self, hit: Hit, place: Place, *, books: bool) -> None:
        """Reset the connection, unless another fault ends it already."""
        if hit.ending is None:
            hit.ending = Ending("reset", "body" if place == "body" else "after" if books else "before")
