"""The launcher: what a schedule starts. It names the period, starts the one run of it, and ends.

A schedule can't start the run itself. Temporal appends the nominal time to the id of whatever a schedule
starts, and starts it again for each backfill and trigger; so the id of a run, which is what refuses a second
one, has to be given by somebody who knows the period. The run outlives its launcher: one that waits for days
holds back no later firing.
"""

from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import SearchAttributeKey, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.workflow import ParentClosePolicy

from workflows.billing_run import BillingRun

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import RunInput, RunRequest
    from workflows.launch_contracts import (
        Firing,
        LaunchActivities,
        LaunchOrder,
        LaunchOutcome,
        LaunchReport,
        PreparedLaunch,
        Winner,
    )
    from workflows.policies import LAUNCH_TRY_SECONDS, forever, ledger

NOMINAL_TIME = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")


@workflow.defn(name="LaunchRun")
class LaunchRun:
    """Starts the run that a firing means, once, whoever else starts it meanwhile."""

    @workflow.init
    def __init__(self, order: LaunchOrder) -> None:
        self._order = order

    @workflow.run
    async def run(self, _order: LaunchOrder) -> LaunchReport:
        """Start the run, or report who has the period. Fails where the source does not come in time."""
        prepared: PreparedLaunch = await workflow.execute_activity_method(
            LaunchActivities.prepare_launch,
            Firing(order=self._order, nominal=self._nominal()),
            start_to_close_timeout=LAUNCH_TRY_SECONDS,
            schedule_to_close_timeout=timedelta(seconds=self._order.source_wait_seconds),
            retry_policy=forever(self._order.timing),
        )
        if prepared.winner is not None:
            return self._lost_to(prepared, prepared.winner)
        if prepared.request is None:
            return self._report(prepared, LaunchOutcome.REFUSED, reason=prepared.refused)
        return await self._start(prepared, prepared.request)

    async def _start(self, prepared: PreparedLaunch, request: RunRequest) -> LaunchReport:
        reuse = WorkflowIDReusePolicy.REJECT_DUPLICATE
        while True:
            try:
                await workflow.start_child_workflow(
                    BillingRun.run,
                    RunInput(request=request),
                    id=request.run_id,
                    id_reuse_policy=reuse,
                    parent_close_policy=ParentClosePolicy.ABANDON,
                )
                return self._report(prepared, LaunchOutcome.STARTED, run_id=request.run_id)
            except WorkflowAlreadyStartedError:
                winner: Winner = await workflow.execute_activity_method(
                    LaunchActivities.find_winner,
                    request,
                    start_to_close_timeout=ledger(request.timing),
                    retry_policy=forever(request.timing),
                )
            # One that was lost before it had a row charged nobody, and would keep the period for as long as
            # Temporal remembers it; so its id is used again, once. The lock is the row.
            if not winner.lost or reuse is WorkflowIDReusePolicy.ALLOW_DUPLICATE:
                return self._lost_to(prepared, winner)
            reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE

    def _nominal(self) -> datetime:
        nominal = workflow.info().typed_search_attributes.get(NOMINAL_TIME)
        return workflow.info().start_time if nominal is None else nominal

    def _lost_to(self, prepared: PreparedLaunch, winner: Winner) -> LaunchReport:
        return self._report(
            prepared,
            LaunchOutcome.DUPLICATE,
            run_id=winner.run_id,
            phase=winner.phase,
            reason=f"{winner.run_id} has {prepared.period} already ({winner.phase}); nobody is charged",
        )

    def _report(
        self,
        prepared: PreparedLaunch,
        outcome: LaunchOutcome,
        *,
        run_id: str | None = None,
        phase: str | None = None,
        reason: str | None = None,
    ) -> LaunchReport:
        return LaunchReport(
            schedule=self._order.schedule,
            period=prepared.period,
            outcome=outcome,
            run_id=run_id,
            phase=phase,
            reason=reason,
        )
