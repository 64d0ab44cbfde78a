"""Both contracts over one piece of memory: the ledger and Stripe as far as a workflow can tell them apart."""

# ruff: noqa: ARG002 - the contracts say what an activity is given

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from temporalio import activity

from workflows import contracts
from workflows.contracts import (
    Due,
    Lock,
    LockRequest,
    Plan,
    Progress,
    RunKey,
    RunReport,
    RunRequest,
    Slice,
)

LINES_PER_SLICE = 10
DEADLINE_SECONDS = 30.0


def _open_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


@dataclass
class FakeLedger:
    """What the fakes answer, and what they were asked. Its clock runs as real time does, and can be moved."""

    slices: int = 2
    held_by: Lock | None = None
    plan_refused: str | None = None
    # What the next attempts to plan raise, in order; after the last of them it works.
    plan_errors: list[Exception] = field(default_factory=list)
    # Why the next attempts of a slice stop early, in order; after the last of them it works.
    halts: dict[int, list[str]] = field(default_factory=dict)
    # How many attempts of a slice raise before one works.
    failures: dict[int, int] = field(default_factory=dict)
    # When what the slices leave open becomes due, in seconds of this ledger's clock.
    due_seconds: list[float] = field(default_factory=list)
    settle_halts: list[str] = field(default_factory=list)
    settled_at_a_time_max: int = 1_000
    # Gates: slices end, and read_due is answered, only while they are open.
    slices_may_end: asyncio.Event = field(default_factory=_open_gate)
    due_may_be_told: asyncio.Event = field(default_factory=_open_gate)

    calls: Counter[str] = field(default_factory=Counter)
    slices_begun: list[int] = field(default_factory=list)
    slices_charged: list[int] = field(default_factory=list)
    settled_at_seconds: list[float] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    _moved_seconds: float = 0.0
    _started_at: float = field(default_factory=time.monotonic)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def now_seconds(self) -> float:
        """The ledger's clock; it starts at zero."""
        return time.monotonic() - self._started_at + self._moved_seconds

    def move_clock(self, seconds: float) -> None:
        """Move the clock on without waking anyone, as a test or an operator does."""
        self._moved_seconds += seconds

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once `holds` holds of what was asked. Raises TimeoutError after 30 s."""
        async with asyncio.timeout(DEADLINE_SECONDS), self._changed:
            await self._changed.wait_for(holds)

    async def note(self, call: str) -> None:
        """Count a call and wake whoever waits for it."""
        async with self._changed:
            self.calls[call] += 1
            self._changed.notify_all()


class FakeRunActivities(contracts.RunActivities):
    """The ledger's part of a run, from memory."""

    def __init__(self, ledger: FakeLedger) -> None:
        self._ledger = ledger

    @activity.defn(name="lock_run")
    async def lock_run(self, request: LockRequest) -> Lock:
        """Give the lock, unless it is held."""
        self._ledger.owners.append(request.owner)
        await self._ledger.note("lock_run")
        return self._ledger.held_by or Lock(acquired=True, run_id=request.run.run_id, phase="locked")

    @activity.defn(name="plan_run")
    async def plan_run(self, request: RunRequest) -> Plan:
        """Plan so many slices, or refuse, or break down."""
        await self._ledger.note("plan_run")
        if self._ledger.plan_errors:
            raise self._ledger.plan_errors.pop(0)
        if self._ledger.plan_refused is not None:
            return Plan(refused=self._ledger.plan_refused)
        return Plan(selected=self._selected, slices=self._ledger.slices, plan_hash="0" * 64)

    @activity.defn(name="read_due")
    async def read_due(self, run: RunKey) -> Due:
        """Say what is open and when it is due, as it is at the moment of asking."""
        ledger, now = self._ledger, self._ledger.now_seconds
        next_due = min(ledger.due_seconds, default=None)
        due = Due(
            open=len(ledger.due_seconds),
            in_flight=len(ledger.due_seconds),
            due_now=sum(due <= now for due in ledger.due_seconds),
            next_due_seconds=None if next_due is None else next_due - now,
            next_due_epoch_seconds=next_due,
        )
        await ledger.note("read_due")
        await ledger.due_may_be_told.wait()
        return due

    @activity.defn(name="begin_settling")
    async def begin_settling(self, run: RunKey) -> None:
        """Note it."""
        await self._ledger.note("begin_settling")

    @activity.defn(name="close_run")
    async def close_run(self, run: RunKey) -> RunReport:
        """Close with every line paid."""
        await self._ledger.note("close_run")
        counts = {"succeeded": self._selected}
        return RunReport(run_id=run.run_id, phase="closed", selected=self._selected, counts=counts)

    @property
    def _selected(self) -> int:
        return self._ledger.slices * LINES_PER_SLICE


class FakeChargeActivities(contracts.ChargeActivities):
    """Stripe's part of a run, from memory."""

    def __init__(self, ledger: FakeLedger) -> None:
        self._ledger = ledger

    @activity.defn(name="charge_slice")
    async def charge_slice(self, work: Slice) -> Progress:
        """Charge a slice whole, or halt, or break down, as the ledger was told."""
        ledger, number = self._ledger, work.slice_no
        ledger.slices_begun.append(number)
        await ledger.note("charge_slice")
        await ledger.slices_may_end.wait()
        if ledger.failures.get(number, 0) > 0:
            ledger.failures[number] -= 1
            raise ConnectionError(f"slice {number} met a broken connection")
        if ledger.halts.get(number):
            return Progress(halted=ledger.halts[number].pop(0))
        ledger.slices_charged.append(number)
        return Progress(settled=LINES_PER_SLICE)

    @activity.defn(name="settle_due")
    async def settle_due(self, run: RunKey) -> Progress:
        """Settle what is due by the ledger's clock, and nothing else."""
        ledger, now = self._ledger, self._ledger.now_seconds
        await ledger.note("settle_due")
        if ledger.settle_halts:
            return Progress(halted=ledger.settle_halts.pop(0))
        due = sorted(due for due in ledger.due_seconds if due <= now)[: ledger.settled_at_a_time_max]
        for one in due:
            ledger.due_seconds.remove(one)
        ledger.settled_at_seconds += [now] * len(due)
        return Progress(settled=len(due))


def fake_activities(ledger: FakeLedger) -> Sequence[Callable[..., Any]]:
    """Return every activity of the contracts, over `ledger`, for a worker."""
    runs, charges = FakeRunActivities(ledger), FakeChargeActivities(ledger)
    return [
        runs.lock_run,
        runs.plan_run,
        runs.read_due,
        runs.begin_settling,
        runs.close_run,
        charges.charge_slice,
        charges.settle_due,
    ]
