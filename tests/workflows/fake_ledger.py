"""One piece of memory behind the fake activities: what they answer, and what they were asked."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from workflows.contracts import HoldKind, Lock, Progress
from workflows.follow_up_contracts import FollowedUp

LINES_PER_SLICE = 10
PLAN_HASH = "0" * 64
DEADLINE_SECONDS = 30.0


def _open_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


@dataclass
class FakeLedger:
    """What the fakes answer, and what they were asked. Its clock runs as real time does, and can be moved."""

    slices: int = 2
    approved: bool = True
    held_by: Lock | None = None
    plan_refused: str | None = None
    # What the next attempts to plan raise, in order; after the last of them it works.
    plan_errors: list[Exception] = field(default_factory=list)
    # Why the next attempts of a slice stop early, in order; after the last of them it works.
    halts: dict[int, list[str | Progress]] = field(default_factory=dict)
    # How many attempts of a slice raise before one works.
    failures: dict[int, int] = field(default_factory=dict)
    # When what the slices leave open becomes due, in seconds of this ledger's clock.
    due_seconds: list[float] = field(default_factory=list)
    # What is waited for after the charging: for each, the times at which it can be looked at, by `clock`.
    waits: list[list[float]] = field(default_factory=list)
    follow_up_halts: list[FollowedUp] = field(default_factory=list)
    followed_up_at: list[float] = field(default_factory=list)
    # What the times of `waits` are counted by, where it is not this ledger's own clock.
    tell_time: Callable[[], float] | None = None
    settle_halts: list[str | Progress] = field(default_factory=list)
    settled_at_a_time_max: int = 1_000
    # How long each slice takes, for tests in which the order of things is left to chance.
    slice_seconds: Callable[[], float] | None = None
    # Gates: lock, plan, slices and read_due are answered only while theirs is open.
    lock_may_end: asyncio.Event = field(default_factory=_open_gate)
    plan_may_end: asyncio.Event = field(default_factory=_open_gate)
    slices_may_end: asyncio.Event = field(default_factory=_open_gate)
    due_may_be_told: asyncio.Event = field(default_factory=_open_gate)
    # A gate for these slices alone.
    slow_slices: set[int] = field(default_factory=set)
    slow_slices_may_end: asyncio.Event = field(default_factory=_open_gate)

    calls: Counter[str] = field(default_factory=Counter)
    slices_begun: list[int] = field(default_factory=list)
    declines_accepted: list[bool] = field(default_factory=list)  # as each of them was told
    slices_charged: list[int] = field(default_factory=list)
    settled_at_seconds: list[float] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    # Where the run stands, and what was decided about it (FakeControlActivities).
    phase: str = "locked"
    hold: HoldKind | None = None
    hold_reason: str | None = None
    canceling: bool = False
    canary_released: bool = False
    reason: str | None = None
    events: list[tuple[str, str]] = field(default_factory=list)
    cap_minor: int = 1_000
    canary: tuple[int, int, int, int] = (LINES_PER_SLICE, 0, 0, 0)
    # Slices whose lines were canceled instead of charged.
    slices_canceled: list[int] = field(default_factory=list)
    _moved_seconds: float = 0.0
    _started_at: float = field(default_factory=time.monotonic)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def now_seconds(self) -> float:
        """The ledger's clock; it starts at zero."""
        return time.monotonic() - self._started_at + self._moved_seconds

    def clock(self) -> float:
        """What is waited for is due by this."""
        return self.now_seconds if self.tell_time is None else self.tell_time()

    def move_clock(self, seconds: float) -> None:
        """Move the clock on without waking anyone, as a test or an operator does."""
        self._moved_seconds += seconds

    @property
    def slices_open(self) -> list[int]:
        """The slices with lines that are neither charged nor canceled; settling begins when none is left."""
        if self.phase in {"settling", "retrying"} and not self.canceling:
            return []
        return sorted(set(range(self.slices)) - set(self.slices_charged) - set(self.slices_canceled))

    @property
    def begins_nothing(self) -> bool:
        """Whether first sends are refused, as the ledger's guard does it."""
        return self.hold is not None or self.canceling

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once `holds` holds of what was asked. Raises TimeoutError after 30 s."""
        async with asyncio.timeout(DEADLINE_SECONDS), self._changed:
            await self._changed.wait_for(holds)

    async def note(self, call: str) -> None:
        """Count a call and wake whoever waits for it."""
        async with self._changed:
            self.calls[call] += 1
            self._changed.notify_all()

    async def tell(self) -> None:
        """Wake whoever waits for something that is no call."""
        async with self._changed:
            self._changed.notify_all()
