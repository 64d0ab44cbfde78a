"""The launcher of a reconciliation: what a schedule starts. It says since when, starts it, and ends.

A schedule can't start the reconciliation itself: what it hands over is the same at each firing, while the
span ends with the firing; and Temporal gives each of them another id, while an account has one at a time.
"""

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import SearchAttributeKey, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.workflow import ParentClosePolicy

from workflows.reconcile import Reconcile

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import Decision
    from workflows.launch_reconcile_contracts import ReconcileLaunch, ReconcileOrder, ReconcileOutcome
    from workflows.policies import TIMINGS
    from workflows.reconcile_contracts import ReconcileRequest

NOMINAL_TIME = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")
TRIES_MAX = 360  # six hours in production, since one of a large account takes its time


@workflow.defn(name="LaunchReconcile")
class LaunchReconcile:
    """Starts the reconciliation that a firing means, after the one of the account that is under way."""

    @workflow.run
    async def run(self, order: ReconcileOrder) -> ReconcileLaunch:
        """Start it, or report that another one held the account for too long."""
        since = self._nominal() - timedelta(days=order.look_back_days)
        request = ReconcileRequest(
            workflow_id=f"reconcile/{order.account}",
            account=order.account,
            since_epoch_seconds=since.timestamp(),
            repair=order.repair,
            decided_by=Decision(who=f"schedule {order.schedule}", reason="by the calendar"),
            timing=order.timing,
        )
        for _ in range(TRIES_MAX):
            if await self._start(request):
                return self._report(order, request, ReconcileOutcome.STARTED)
            await asyncio.sleep(TIMINGS[order.timing].retry_max)
        return self._report(order, request, ReconcileOutcome.GIVEN_UP)

    async def _start(self, request: ReconcileRequest) -> bool:
        try:
            await workflow.start_child_workflow(
                Reconcile.run,
                request,
                id=request.workflow_id,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                parent_close_policy=ParentClosePolicy.ABANDON,
            )
        except WorkflowAlreadyStartedError:
            return False
        return True

    def _nominal(self) -> datetime:
        nominal = workflow.info().typed_search_attributes.get(NOMINAL_TIME)
        return workflow.info().start_time if nominal is None else nominal

    def _report(
        self, order: ReconcileOrder, request: ReconcileRequest, outcome: ReconcileOutcome
    ) -> ReconcileLaunch:
        return ReconcileLaunch(
            schedule=order.schedule,
            workflow_id=request.workflow_id,
            outcome=outcome,
            since_epoch_seconds=request.since_epoch_seconds or 0.0,
        )
