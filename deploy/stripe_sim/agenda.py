"""What will happen by itself, by the simulator's clock."""

import heapq
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, order=True, slots=True)
class Appointment:
    """At `at` (Unix seconds) something falls due for one object; `number` keeps the order of equal times."""

    at: float
    number: int
    kind: str
    account_id: str
    object_id: str


class Agenda:
    """All appointments, soonest first. One that was moved is still here: compare with the object."""

    def __init__(self) -> None:
        self._heap: list[Appointment] = []
        self._count = 0

    def put(self, kind: str, account_id: str, item: Any) -> None:
        """Remember an object's `settle_at`, if it has one."""
        at = getattr(item, "settle_at", None)
        if at is not None:
            self._count += 1
            heapq.heappush(self._heap, Appointment(at, self._count, kind, account_id, item.id))

    def next_at(self) -> float | None:
        """Return when the next appointment falls due."""
        return self._heap[0].at if self._heap else None

    def pop_due(self, now: float) -> Appointment | None:
        """Return the earliest appointment that is due, once, or None."""
        return heapq.heappop(self._heap) if self._heap and self._heap[0].at <= now else None
