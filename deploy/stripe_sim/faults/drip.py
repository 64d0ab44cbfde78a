"""The body arrives in crumbs, none of them late enough to trip a timeout on reading."""

from dataclasses import dataclass
from typing import ClassVar

from deploy.stripe_sim.faults.effect import Effect, check_seconds
from deploy.stripe_sim.faults.hit import Hit, Place


@dataclass(frozen=True, slots=True)
class Drip(Effect):
    """Spreads the body over so many real seconds."""

    KIND: ClassVar = "drip"
    PLACES: ClassVar = ("body",)
    seconds: float = 1.0

    def check(self) -> str | None:
        """Return what is wrong with the values, or None."""
        return check_seconds(self.seconds)

    def apply(self, hit: Hit, place: Place, *, books: bool) -> None:  # noqa: ARG002 - part of the interface
        """Slow down the body."""
        hit.drip_seconds += self.seconds
