"""The beginning of a run: its lock, its plan, and somebody's word that the plan may be charged."""

import asyncio

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from workflows.notify import start_notifications
from workflows.run_control import RunControl

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import Lock, LockRequest, Plan, RunActivities, RunReport
    from workflows.policies import PLAN_SECONDS, RECOVER_SECONDS, heartbeat, ledger

# Where a run goes on that is recovered behind its charging, by its phase in the ledger.
_GOES_ON_WITH = {"settling": "settle", "retrying": "retry"}


class RunPlanning(RunControl):
    """Locks and plans a run, and waits for its approval."""

    async def _lock_and_plan(self) -> RunReport | None:
        lock = await self._lock()
        if not lock.acquired:
            return RunReport(
                run_id=self._key.run_id,
                phase="refused",
                owner_run=lock.run_id,
                reason=f"{lock.run_id} has this period ({lock.phase})",
            )
        self._take_hold(lock.hold, lock.hold_reason, canceling=lock.canceling)
        self._update(phase="plan", canary_passed=lock.canary_released)
        plan = await self._plan()
        if plan.refused is not None:
            return RunReport(run_id=self._key.run_id, phase="failed", reason=plan.refused)
        self._update(
            phase=_GOES_ON_WITH.get(lock.phase, "approve"),
            slices=plan.slices,
            selected=plan.selected,
            plan_hash=plan.plan_hash,
            approved=plan.approved,
        )
        if not plan.approved:
            await start_notifications(self._key, self._request.timing)
        return None

    async def _plan(self) -> Plan:
        """Return the plan; a cancel ends the planning, which may be at a source that never answers."""
        planning: asyncio.Task[Plan] = asyncio.create_task(
            workflow.execute_activity_method(
                RunActivities.plan_run,
                self._request,
                start_to_close_timeout=PLAN_SECONDS,
                heartbeat_timeout=heartbeat(self._request.timing),
                retry_policy=self._retry,
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
        )
        await workflow.wait_condition(lambda: planning.done() or self._state.canceling)
        if not planning.done():
            planning.cancel()
        try:
            return await planning
        except (ActivityError, asyncio.CancelledError) as error:
            if not is_cancelled_exception(error) or not self._state.canceling:
                raise
        return await workflow.execute_activity_method(
            RunActivities.give_up_run,
            self._key,
            start_to_close_timeout=ledger(self._request.timing),
            retry_policy=self._retry,
        )

    async def _lock(self) -> Lock:
        recovers = self._request.recovered_owner is not None
        return await workflow.execute_activity_method(
            RunActivities.lock_run,
            LockRequest(run=self._request, owner=workflow.info().first_execution_run_id),
            start_to_close_timeout=RECOVER_SECONDS if recovers else ledger(self._request.timing),
            heartbeat_timeout=heartbeat(self._request.timing) if recovers else None,
            retry_policy=self._retry,
        )

    async def _wait_for_approval(self) -> None:
        """Wait until a person says yes or no, however long that takes. A plan that is approved has not to."""
        while not self._state.approved and not self._state.canceling:
            await workflow.wait_condition(
                lambda: self._state.approved or self._state.canceling or self._should_continue_as_new()
            )
            if self._should_continue_as_new():
                await self._continue_as_new()
        self._update(phase="charge")
