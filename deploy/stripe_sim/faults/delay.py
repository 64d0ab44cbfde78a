"""The answer takes its time: before the execution (the key is in use meanwhile), after it, or midway."""

from dataclasses import dataclass
from typing import ClassVar

from deploy.stripe_sim.faults.effect import Effect, check_seconds
from deploy.stripe_sim.faults.hit import Hit, Place


@dataclass(frozen=True, slots=True)
class Delay(Effect):
    """Waits for real seconds."""

    KIND: ClassVar = "delay"
    PLACES: ClassVar = ("before", "after", "body")
    seconds: float = 0.0

    def check(self) -> str | None:
        """Return what is wrong with the values, or None."""
        return check_seconds(self.seconds)

    def apply(self, hit: Hit, place: Place, *, books: bool) -> None:  # noqa: ARG002 - part of the interface
        """Add to the delays of this place."""
        if place == "before":
            hit.delay_before_seconds += self.seconds
        elif place == "after":
            hit.delay_after_seconds += self.seconds
        else:
            hit.stall_seconds += self.seconds
