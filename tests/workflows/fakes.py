"""Both contracts over one piece of memory: the ledger and Stripe as far as a workflow can tell them apart."""

# ruff: noqa: ARG002 - the contracts say what an activity is given

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from temporalio import activity

from activities.heartbeat import heartbeats
from tests.workflows.fake_control import fake_control_activities
from tests.workflows.fake_follow_ups import fake_follow_up_activities
from tests.workflows.fake_ledger import LINES_PER_SLICE, PLAN_HASH, FakeLedger
from workflows import contracts, notify_contracts
from workflows.contracts import (
    Due,
    Lock,
    LockRequest,
    Plan,
    Progress,
    RunKey,
    RunReport,
    RunRequest,
    Settling,
    Slice,
)
from workflows.notify_contracts import Claim, Claimed, Waiting


class FakeRunActivities(contracts.RunActivities):
    """The ledger's part of a run, from memory."""

    def __init__(self, ledger: FakeLedger) -> None:
        self._ledger = ledger

    @activity.defn(name="lock_run")
    async def lock_run(self, request: LockRequest) -> Lock:
        """Give the lock, unless it is held."""
        self._ledger.owners.append(request.owner)
        ledger = self._ledger
        if request.run.recovered_owner is not None:
            ledger.events.append(("recovered", "somebody"))
        await ledger.note("lock_run")
        await ledger.lock_may_end.wait()
        return ledger.held_by or Lock(
            acquired=True,
            run_id=request.run.run_id,
            phase=ledger.phase,
            hold=ledger.hold,
            hold_reason=ledger.hold_reason,
            canceling=ledger.canceling,
            canary_released=ledger.canary_released,
        )

    @activity.defn(name="plan_run")
    async def plan_run(self, request: RunRequest) -> Plan:
        """Plan so many slices, or refuse, or break down."""
        await self._ledger.note("plan_run")
        if self._ledger.plan_errors:
            raise self._ledger.plan_errors.pop(0)
        if self._ledger.plan_refused is not None:
            return Plan(refused=self._ledger.plan_refused)
        async with heartbeats():
            await self._ledger.plan_may_end.wait()
        if self._ledger.phase == "locked":
            self._ledger.phase = "charging" if self._ledger.approved else "planned"
        return self._plan

    @activity.defn(name="give_up_run")
    async def give_up_run(self, run: RunKey) -> Plan:
        """Give up what has no plan yet."""
        await self._ledger.note("give_up_run")
        if self._ledger.phase != "locked":
            return self._plan
        self._ledger.phase = "failed"
        return Plan(refused=self._ledger.reason)

    @activity.defn(name="read_due")
    async def read_due(self, run: RunKey) -> Due:
        """Say what is open and when it is due, as it is at the moment of asking; all of it is in flight."""
        ledger, now = self._ledger, self._ledger.now_seconds
        next_due = min(ledger.due_seconds, default=None)
        next_due_seconds = None if next_due is None else next_due - now
        due_now = sum(due <= now for due in ledger.due_seconds)
        not_started = LINES_PER_SLICE * len(ledger.slices_open)
        due = Due(
            open=len(ledger.due_seconds) + not_started,
            in_flight=len(ledger.due_seconds),
            due_now=due_now + not_started,
            next_due_seconds=next_due_seconds,
            next_due_epoch_seconds=next_due,
            hold=ledger.hold,
            hold_reason=ledger.hold_reason,
            canceling=ledger.canceling,
            in_flight_due_now=due_now,
            next_in_flight_due_seconds=next_due_seconds,
        )
        await ledger.note("read_due")
        await ledger.due_may_be_told.wait()
        return due

    @activity.defn(name="begin_settling")
    async def begin_settling(self, run: RunKey) -> None:
        """Note it."""
        if self._ledger.phase != "planned":
            self._ledger.phase = "settling"
        await self._ledger.note("begin_settling")

    @activity.defn(name="close_run")
    async def close_run(self, run: RunKey) -> RunReport:
        """Close with every line paid that was not canceled."""
        ledger = self._ledger
        if ledger.slices_open:
            raise RuntimeError("the run still has open charges")
        ledger.phase = "closed"
        await ledger.note("close_run")
        canceled = LINES_PER_SLICE * len(ledger.slices_canceled)
        counts = {"succeeded": self._selected - canceled}
        if canceled:
            counts["canceled"] = canceled
        return RunReport(
            run_id=run.run_id, phase="closed", selected=self._selected, counts=counts, reason=ledger.reason
        )

    @property
    def _plan(self) -> Plan:
        return Plan(
            selected=self._selected,
            slices=self._ledger.slices,
            plan_hash=PLAN_HASH,
            approved=self._ledger.phase != "planned",
        )

    @property
    def _selected(self) -> int:
        return self._ledger.slices * LINES_PER_SLICE


class FakeChargeActivities(contracts.ChargeActivities):
    """Stripe's part of a run, from memory."""

    def __init__(self, ledger: FakeLedger) -> None:
        self._ledger = ledger

    @activity.defn(name="charge_slice")
    async def charge_slice(self, work: Slice) -> Progress:
        """Charge a slice whole, or halt, or break down, or leave it where the run is held."""
        ledger, number = self._ledger, work.slice_no
        ledger.slices_begun.append(number)
        ledger.declines_accepted.append(work.declines_accepted)
        await ledger.note("charge_slice")
        await ledger.slices_may_end.wait()
        if number in ledger.slow_slices:
            await ledger.slow_slices_may_end.wait()
        if ledger.slice_seconds is not None:
            await asyncio.sleep(ledger.slice_seconds())
        if ledger.failures.get(number, 0) > 0:
            ledger.failures[number] -= 1
            raise ConnectionError(f"slice {number} met a broken connection")
        if ledger.halts.get(number):
            return _as_progress(ledger.halts[number].pop(0))
        if ledger.begins_nothing:
            return Progress(held=LINES_PER_SLICE)
        if number in ledger.slices_charged:
            return Progress()
        ledger.slices_charged.append(number)
        await ledger.tell()
        return Progress(settled=LINES_PER_SLICE)

    @activity.defn(name="settle_due")
    async def settle_due(self, work: Settling) -> Progress:
        """Settle what is due by the ledger's clock; of a canceled run, cancel what was never begun."""
        ledger, now = self._ledger, self._ledger.now_seconds
        await ledger.note("settle_due")
        if ledger.settle_halts:
            return _as_progress(ledger.settle_halts.pop(0))
        canceled = ledger.slices_open if ledger.canceling else []
        ledger.slices_canceled += canceled
        due = sorted(due for due in ledger.due_seconds if due <= now)[: ledger.settled_at_a_time_max]
        for one in due:
            ledger.due_seconds.remove(one)
        ledger.settled_at_seconds += [now] * len(due)
        return Progress(settled=len(due) + LINES_PER_SLICE * len(canceled))


class FakeNotificationActivities(notify_contracts.NotificationActivities):
    """Nobody wants to be told."""

    @activity.defn(name="claim_notifications")
    async def claim_notifications(self, claim: Claim) -> Claimed:
        """Find nothing to deliver."""
        return Claimed()

    @activity.defn(name="deliver_notification")
    async def deliver_notification(self, waiting: Waiting) -> None:
        """Never called."""

    @activity.defn(name="give_up_notification")
    async def give_up_notification(self, waiting: Waiting) -> None:
        """Never called."""


def _as_progress(halt: str | Progress) -> Progress:
    return Progress(halted=halt) if isinstance(halt, str) else halt


def fake_activities(ledger: FakeLedger) -> Sequence[Callable[..., Any]]:
    """Return every activity of the contracts, over `ledger`, for a worker."""
    runs, charges = FakeRunActivities(ledger), FakeChargeActivities(ledger)
    return [
        *fake_control_activities(ledger),
        *fake_follow_up_activities(ledger, runs.read_due),
        FakeNotificationActivities().claim_notifications,
        runs.lock_run,
        runs.plan_run,
        runs.give_up_run,
        runs.read_due,
        runs.begin_settling,
        runs.close_run,
        charges.charge_slice,
        charges.settle_due,
    ]
