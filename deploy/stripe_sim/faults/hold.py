"""The request hangs on the server while its client is cut off: the key is in use, resends get 409."""

from dataclasses import dataclass
from typing import ClassVar

from deploy.stripe_sim.faults.effect import Effect, check_seconds
from deploy.stripe_sim.faults.hit import Hit, Place


@dataclass(frozen=True, slots=True)
class Hold(Effect):
    """Closes the connection, and executes the request after so many seconds of the simulator's clock.

    Until then its key answers 409 `idempotency_key_in_use`; afterwards it replays what came of it.
    """

    KIND: ClassVar = "hold"
    PLACES: ClassVar = ("before",)
    seconds: float = 60.0

    def check(self) -> str | None:
        """Return what is wrong with the values, or None."""
        return check_seconds(self.seconds)

    def apply(self, hit: Hit, place: Place, *, books: bool) -> None:  # noqa: ARG002 - part of the interface
        """Postpone the execution, unless another fault does."""
        if hit.hold_seconds is None and hit.late_seconds is None:
            hit.hold_seconds = self.seconds
