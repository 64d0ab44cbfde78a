"""An error in Stripe's shape, stored under the key or not, with the request executed or not.

Also 401 from request n on (`match.from_request`), both kinds of 429 (`code` is `rate_limit` or
`lock_timeout`), and a bare 409.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from deploy.stripe_sim.faults.effect import BookingEffect, check_status
from deploy.stripe_sim.faults.hit import Canned, Hit, Place


@dataclass(frozen=True, slots=True)
class Error(BookingEffect):
    """Answers `status`. One that is neither stored nor booked stands in front of everything else."""

    KIND: ClassVar = "error"
    PLACES: ClassVar = ("before", "after")
    status: int = 500
    stored: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    code: str | None = None
    message: str | None = None

    def check(self) -> str | None:
        """Return what is wrong with the values, or None."""
        headers: Any = self.headers
        if not isinstance(headers, dict) or not all(isinstance(text, str) for text in headers.values()):
            return "headers maps names to strings"
        return check_status(self.status, 400) or BookingEffect.check(self)

    def apply(self, hit: Hit, place: Place, *, books: bool) -> None:  # noqa: ARG002 - part of the interface
        """Put the error in place of the answer, unless another fault answers already."""
        if hit.canned is None:
            hit.canned = Canned(self.status, books, self.stored, self.code, self.message, self.headers)
