"""One billing run: lock, plan, charge in slices, settle what is open, close.

The workflow decides what happens next and holds a handful of counters. Which customers are charged, and how
far each has come, is the ledger's knowledge; a timer here is only a hint to go and ask it.
"""

import asyncio
import contextlib
from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import (
        ChargeActivities,
        Due,
        LockRequest,
        Progress,
        RunActivities,
        RunInput,
        RunKey,
        RunProgress,
        RunReport,
        Slice,
    )
    from workflows.policies import (
        PLAN_SECONDS,
        SLICE_SECONDS,
        TIMINGS,
        forever,
        heartbeat,
        ledger,
    )


@workflow.defn(name="BillingRun")
class BillingRun:
    """One run of one account and period. Its id is the run's id in the ledger."""

    @workflow.init
    def __init__(self, run: RunInput) -> None:
        self._request = run.request
        self._state = run.state
        self._key = RunKey(run_id=run.request.run_id, account=run.request.account)
        self._retry = forever(run.request.timing)
        self._slices_done = run.state.next_slice - len(run.state.halted_slices)
        self._ticks = 0
        self._halted: dict[str, str] = {}
        self._waiting_until: float | None = None

    @workflow.run
    async def run(self, _run: RunInput) -> RunReport:
        """Carry the run from where its state says it is to its end."""
        if self._state.phase == "lock":
            refusal = await self._lock_and_plan()
            if refusal is not None:
                return refusal
        if self._state.phase == "charge":
            await self._charge()
        await self._settle()
        return await workflow.execute_activity_method(
            RunActivities.close_run,
            self._key,
            start_to_close_timeout=ledger(self._request.timing),
            retry_policy=self._retry,
        )

    @workflow.update(name="tick")
    async def tick(self) -> RunProgress:
        """Wake the run at once: it asks the ledger what is due now. Operators and moved clocks use this."""
        self._ticks += 1
        return self.progress()

    @workflow.query(name="progress")
    def progress(self) -> RunProgress:
        """Coarse counters; details are SQL."""
        return RunProgress(
            run_id=self._key.run_id,
            phase=self._state.phase,
            slices=self._state.slices,
            slices_done=self._slices_done,
            settled=self._state.settled,
            deferred=self._state.deferred,
            halted=next(iter(self._halted.values()), None),
            waiting_until_epoch_seconds=self._waiting_until,
        )

    async def _lock_and_plan(self) -> RunReport | None:
        lock = await workflow.execute_activity_method(
            RunActivities.lock_run,
            LockRequest(run=self._request, owner=workflow.info().first_execution_run_id),
            start_to_close_timeout=ledger(self._request.timing),
            retry_policy=self._retry,
        )
        if not lock.acquired:
            return RunReport(
                run_id=self._key.run_id,
                phase="refused",
                owner_run=lock.run_id,
                reason=f"{lock.run_id} has this period ({lock.phase})",
            )
        plan = await workflow.execute_activity_method(
            RunActivities.plan_run,
            self._request,
            start_to_close_timeout=PLAN_SECONDS,
            heartbeat_timeout=heartbeat(self._request.timing),
            retry_policy=self._retry,
        )
        if plan.refused is not None:
            return RunReport(run_id=self._key.run_id, phase="failed", reason=plan.refused)
        self._update(phase="charge", slices=plan.slices, selected=plan.selected)
        return None

    async def _charge(self) -> None:
        """Work through the slices, a few at once; one that halts is tried again after a tick or a poll."""
        running: set[asyncio.Task[None]] = set()
        while self._has_slices() or running:
            while (
                self._has_slices()
                and len(running) < self._request.slices_at_once
                and not self._should_continue_as_new()
            ):
                running.add(asyncio.create_task(self._charge_slice(self._take_slice())))
            if not running:
                # Every slice that was begun has ended: nothing is in flight, so nothing can be orphaned.
                await self._continue_as_new()
            done, pending = await workflow.wait(running, return_when=asyncio.FIRST_COMPLETED)
            running = set(pending)
            for task in done:
                task.result()
        await workflow.execute_activity_method(
            RunActivities.begin_settling,
            self._key,
            start_to_close_timeout=ledger(self._request.timing),
            retry_policy=self._retry,
        )
        self._update(phase="settle")

    def _has_slices(self) -> bool:
        return bool(self._state.halted_slices) or self._state.next_slice < self._state.slices

    def _take_slice(self) -> int:
        if self._state.halted_slices:
            slice_no, *others = self._state.halted_slices
            self._update(halted_slices=tuple(others))
            return slice_no
        self._update(next_slice=self._state.next_slice + 1)
        return self._state.next_slice - 1

    async def _charge_slice(self, slice_no: int) -> None:
        while True:
            ticks_seen = self._ticks
            progress = await workflow.execute_activity_method(
                ChargeActivities.charge_slice,
                Slice(run=self._key, slice_no=slice_no),
                activity_id=f"slice-{slice_no}-{workflow.uuid4().hex[:8]}",
                start_to_close_timeout=SLICE_SECONDS,
                heartbeat_timeout=heartbeat(self._request.timing),
                retry_policy=self._retry,
            )
            self._count(f"slice {slice_no}", progress)
            if progress.halted is None:
                self._slices_done += 1
                return
            if self._should_continue_as_new():
                # A slice may stay halted for days: it must not keep a long history alive.
                self._update(halted_slices=(*self._state.halted_slices, slice_no))
                return
            await self._wait(self._poll_max, ticks_seen)

    async def _settle(self) -> None:
        """Settle what is open, as it becomes due, until nothing is. This may take days."""
        while True:
            if self._should_continue_as_new():
                await self._continue_as_new()
            ticks_seen = self._ticks
            due = await self._read_due()
            if due.open == 0:
                self._waiting_until = None
                return
            if due.due_now:
                progress = await workflow.execute_activity_method(
                    ChargeActivities.settle_due,
                    self._key,
                    start_to_close_timeout=SLICE_SECONDS,
                    heartbeat_timeout=heartbeat(self._request.timing),
                    retry_policy=self._retry,
                )
                self._count("settle", progress)
                if progress.halted is not None:
                    await self._wait(self._poll_max, ticks_seen)
            else:
                self._waiting_until = due.next_due_epoch_seconds
                await self._wait(min(due.next_due_seconds or 0.0, self._poll_max), ticks_seen)

    async def _read_due(self) -> Due:
        return await workflow.execute_activity_method(
            RunActivities.read_due,
            self._key,
            start_to_close_timeout=ledger(self._request.timing),
            retry_policy=self._retry,
        )

    async def _wait(self, seconds: float, ticks_seen: int) -> None:
        """Sleep, but not past a tick, and never so long that a moved clock goes unseen.

        `ticks_seen` is from before the ledger was asked: a tick that came while it answered counts too.
        """
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: self._ticks > ticks_seen, timeout=timedelta(seconds=max(seconds, 0.1))
            )
        self._waiting_until = None

    async def _continue_as_new(self) -> None:
        # Handlers cut off by continue-as-new would lose their updates.
        await workflow.wait_condition(workflow.all_handlers_finished)
        self._update(generation=self._state.generation + 1)
        workflow.continue_as_new(RunInput(request=self._request, state=self._state))

    def _should_continue_as_new(self) -> bool:
        return workflow.info().is_continue_as_new_suggested()

    def _count(self, work: str, progress: Progress) -> None:
        self._halted.pop(work, None)
        if progress.halted is not None:
            self._halted[work] = progress.halted
        self._update(
            settled=self._state.settled + progress.settled, deferred=self._state.deferred + progress.deferred
        )

    def _update(self, **changes: int | str | tuple[int, ...]) -> None:
        self._state = self._state.model_copy(update=changes)

    @property
    def _poll_max(self) -> float:
        return TIMINGS[self._request.timing].poll_max
