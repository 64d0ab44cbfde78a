"""What the search index does not know yet.

A change reaches search only after a lag, so each change leaves a note of what search still shows: the fields
as they were, or nothing for a new object. Notes older than the lag are forgotten.
"""

from collections import deque
from typing import Final, NamedTuple

from deploy.stripe_sim.objects import PaymentIntent

# A clock that stands still would collect notes for ever; the oldest then reach search early.
NOTES_MAX: Final = 8_000


class Indexed(NamedTuple):
    """The fields of a PaymentIntent that can be searched."""

    amount: int
    created: int
    currency: str
    customer: str | None
    status: str
    metadata: dict[str, str]


def index_intent(intent: PaymentIntent) -> Indexed:
    """Return what search would show of a PaymentIntent if it did not lag."""
    return Indexed(
        intent.amount, intent.created, intent.currency, intent.customer, intent.status, intent.metadata
    )


class SearchIndex:
    """The notes of all accounts, oldest first: when, which object, and what search shows instead."""

    def __init__(self) -> None:
        self._notes: deque[tuple[float, str, Indexed | None]] = deque(maxlen=NOTES_MAX)

    def note(self, at: float, intent_id: str, before: Indexed | None) -> None:
        """Remember a change that search does not show yet."""
        self._notes.append((at, intent_id, before))

    def stale(self, now: float, lag_seconds: float) -> dict[str, Indexed | None]:
        """Return what search shows, per object that has changed within the lag; None is not found yet."""
        while self._notes and self._notes[0][0] <= now - lag_seconds:
            self._notes.popleft()
        shown: dict[str, Indexed | None] = {}
        for _, intent_id, before in self._notes:
            shown.setdefault(intent_id, before)
        return shown
