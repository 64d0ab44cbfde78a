"""One billing run: lock, plan, wait for approval, charge in slices, settle what is open, retry, close.

The workflow decides what happens next and holds a handful of counters. Which customers are charged, and how
far each has come, is the ledger's knowledge; a timer here is only a hint to go and ask it. The parts:
`run_control` has the updates by which people decide, `run_planning` the beginning, `run_settling` what goes
on while slices are charged and after, `run_retrying` the days after that, and this module the charging.
"""

import asyncio

from temporalio import workflow

from workflows.notify import start_notifications
from workflows.run_planning import RunPlanning
from workflows.run_retrying import RunRetrying

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import ChargeActivities, HoldKind, RunActivities, RunInput, RunReport, Slice
    from workflows.control_contracts import ControlActivities
    from workflows.domain.canary import judge_canary
    from workflows.policies import CLOSE_SECONDS, SLICE_SECONDS, heartbeat, ledger


@workflow.defn(name="BillingRun")
class BillingRun(RunPlanning, RunRetrying):
    """One run of one account and period. Its id is the run's id in the ledger."""

    @workflow.init
    def __init__(self, run: RunInput) -> None:
        super().__init__(run)

    @workflow.run
    async def run(self, _run: RunInput) -> RunReport:
        """Carry the run from where its state says it is to its end."""
        report = await self._carry()
        # Handlers cut off by the end would leave their callers without an answer.
        await workflow.wait_condition(workflow.all_handlers_finished)
        return report

    async def _carry(self) -> RunReport:
        if self._state.phase == "lock":
            refusal = await self._lock_and_plan()
            if refusal is not None:
                return refusal
        if self._state.phase == "approve":
            await self._wait_for_approval()
        if self._state.phase == "charge":
            await self._charge()
        if self._state.phase == "settle":
            await self._settle()
            await self._plan_follow_ups()
        if self._state.phase == "retry":
            await self._follow_up()
        report: RunReport = await workflow.execute_activity_method(
            RunActivities.close_run,
            self._key,
            start_to_close_timeout=CLOSE_SECONDS,
            heartbeat_timeout=heartbeat(self._request.timing),
            retry_policy=self._retry,
        )
        if report.notifications:
            await start_notifications(self._key, self._request.timing)
        return report

    async def _charge(self) -> None:
        """Work through the slices, a few at once, the canary's before all others."""
        running: set[asyncio.Task[None]] = set()
        while True:
            wakes_seen = self._wakes
            while self._may_begin_slice(len(running)):
                running.add(asyncio.create_task(self._charge_slice(self._take_slice())))
            if running:
                await self._until_any_ends(running, wakes_seen)
                ended = {task for task in running if task.done()}
                running -= ended
                for task in ended:
                    task.result()
            elif self._state.canceling or not self._has_slices(self._state.slices):
                break
            elif self._should_continue_as_new():
                # Every slice that was begun has ended: nothing is in flight, so nothing can be orphaned.
                await self._continue_as_new()
            elif self._is_held:
                if await self._settle_while_held() == 0:
                    break  # slices are left to look at, and nothing is open in them: waiting would never end
            else:
                await self._judge_canary()
        await workflow.execute_activity_method(
            RunActivities.begin_settling,
            self._key,
            start_to_close_timeout=ledger(self._request.timing),
            retry_policy=self._retry,
        )
        self._update(phase="settle")

    async def _until_any_ends(self, running: set[asyncio.Task[None]], wakes_seen: int) -> None:
        """Return when a slice has ended, or when something was decided: there may be places for more now."""
        await workflow.wait_condition(
            lambda: self._wakes > wakes_seen or any(task.done() for task in running)
        )

    def _may_begin_slice(self, running: int) -> bool:
        return (
            not self._is_held
            and not self._state.canceling
            and running < (1 if self._is_on_probation else self._request.slices_at_once)
            and self._has_slices(1 if self._canary_is_out else self._state.slices)
            and not self._should_continue_as_new()
        )

    @property
    def _canary_is_out(self) -> bool:
        """Whether the canary, which is slice 0, has not been judged yet."""
        return self._request.canary.lines > 0 and not self._state.canary_passed and self._state.slices > 0

    def _has_slices(self, slices: int) -> bool:
        return bool(self._state.halted_slices) or self._state.next_slice < slices

    def _take_slice(self) -> int:
        if self._state.halted_slices:
            slice_no, *others = self._state.halted_slices
            self._update(halted_slices=tuple(others))
            return slice_no
        self._update(next_slice=self._state.next_slice + 1)
        return self._state.next_slice - 1

    async def _charge_slice(self, slice_no: int) -> None:
        """Charge one slice whole, or leave it among the halted ones: they come first when the run goes on."""
        while True:
            wakes_seen = self._wakes
            progress = await workflow.execute_activity_method(
                ChargeActivities.charge_slice,
                Slice(run=self._key, slice_no=slice_no, declines_accepted=self._state.declines_accepted),
                activity_id=f"slice-{slice_no}-{workflow.uuid4().hex[:8]}",
                start_to_close_timeout=SLICE_SECONDS,
                heartbeat_timeout=heartbeat(self._request.timing),
                retry_policy=self._retry,
            )
            await self._take_progress(f"slice {slice_no}", progress)
            if progress.halted is None and not progress.held:
                self._slices_done += 1
                self._is_on_probation = False
                return
            passes = progress.halted is not None and progress.halted_kind is None
            if passes and not self._has_to_stop:
                await self._wait(self._poll_max, wakes_seen)
            if not passes or self._has_to_stop:
                # It may stay halted for days: it must neither keep its place nor a long history alive.
                self._update(halted_slices=(*self._state.halted_slices, slice_no))
                return

    async def _judge_canary(self) -> None:
        """Let the rest follow the canary by its rule, or hold the run until somebody has looked."""
        result = await workflow.execute_activity_method(
            ControlActivities.read_canary,
            self._key,
            start_to_close_timeout=ledger(self._request.timing),
            retry_policy=self._retry,
        )
        verdict = judge_canary(
            lines=result.lines,
            declined=result.declined,
            not_paid_otherwise=result.not_paid_otherwise,
            unknown=result.unknown,
            declined_percent_max=self._request.canary.declined_percent_max,
        )
        if verdict.goes_on:
            await self._rule(ControlActivities.release_canary, self._by_rule(verdict.reason))
        else:
            await self._hold(HoldKind.CANARY, verdict.reason)
