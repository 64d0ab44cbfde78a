"""A stored 500 that Stripe rolls forward later: objects, money and webhooks appear that no answer ever named.

Source: docs.stripe.com/error-low-level ("we may try to roll the request forward and fire webhooks").
"""

from dataclasses import dataclass
from typing import ClassVar

from deploy.stripe_sim.faults.effect import Effect, check_seconds, check_status
from deploy.stripe_sim.faults.hit import Canned, Hit, Place


@dataclass(frozen=True, slots=True)
class Late(Effect):
    """Answers a stored error, and executes the request `seconds` later by the simulator's clock."""

    KIND: ClassVar = "late"
    PLACES: ClassVar = ("before",)
    seconds: float = 60.0
    status: int = 500

    def check(self) -> str | None:
        """Return what is wrong with the values, or None."""
        return check_status(self.status, 500) or check_seconds(self.seconds)

    def apply(self, hit: Hit, place: Place, *, books: bool) -> None:  # noqa: ARG002 - part of the interface
        """Postpone the execution behind a stored error, unless another fault postpones or answers."""
        if hit.canned is None and hit.hold_seconds is None:
            hit.canned, hit.late_seconds = Canned(self.status, books=False, stored=True), self.seconds
