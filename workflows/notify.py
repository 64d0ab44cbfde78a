"""Tell people about a run, for days if need be, while the run itself goes on or has long closed.

What is to be told is in the ledger before this begins. Each notification is tried by itself, so a destination
that is down holds up no other, and nothing here holds up a run.
"""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError
from temporalio.workflow import ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import RunKey, Timing
    from workflows.notify_contracts import (
        Claim,
        Claimed,
        DeliveryReport,
        DeliveryRequest,
        NotificationActivities,
        Waiting,
    )
    from workflows.policies import (
        DELIVERIES,
        DELIVERY_TRY_SECONDS,
        delivering,
        forever,
        ledger,
    )


@workflow.defn(name="DeliverNotifications")
class DeliverNotifications:
    """Delivers what waits in a run's outbox when it begins; what comes later has a deliverer of its own."""

    @workflow.init
    def __init__(self, request: DeliveryRequest) -> None:
        self._run = request.run
        self._timing = request.timing

    @workflow.run
    async def run(self, _request: DeliveryRequest) -> DeliveryReport:
        """Deliver each notification or give it up."""
        claimed: Claimed = await workflow.execute_activity_method(
            NotificationActivities.claim_notifications,
            Claim(run=self._run, deliverer=workflow.info().workflow_id),
            start_to_close_timeout=ledger(self._timing),
            retry_policy=forever(self._timing),
        )
        delivered = await asyncio.gather(*(self._deliver(one) for one in claimed.waiting))
        return DeliveryReport(delivered=sum(delivered), given_up=len(delivered) - sum(delivered))

    async def _deliver(self, waiting: Waiting) -> bool:
        try:
            await workflow.execute_activity_method(
                NotificationActivities.deliver_notification,
                waiting,
                start_to_close_timeout=DELIVERY_TRY_SECONDS,
                schedule_to_close_timeout=timedelta(seconds=DELIVERIES[self._timing].give_up_after),
                retry_policy=delivering(self._timing),
            )
            return True
        except ActivityError:
            await workflow.execute_activity_method(
                NotificationActivities.give_up_notification,
                waiting,
                start_to_close_timeout=ledger(self._timing),
                retry_policy=forever(self._timing),
            )
            return False


async def start_notifications(run: RunKey, timing: Timing) -> None:
    """Start a deliverer from a run's workflow, and return when it has begun: the run waits for nothing else.

    It outlives the run. Its id is unique: the close may come while the deliverer of a hold still tries.
    """
    await workflow.start_child_workflow(
        DeliverNotifications.run,
        DeliveryRequest(run=run, timing=timing),
        id=f"notify/{run.run_id}/{workflow.uuid4().hex[:8]}",
        parent_close_policy=ParentClosePolicy.ABANDON,
    )
