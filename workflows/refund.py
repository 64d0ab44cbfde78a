"""One refund that somebody asked for: sent once, however often it has to be asked what became of it."""

import asyncio
from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from workflows.policies import TIMINGS, forever, heartbeat
    from workflows.refund_contracts import RefundActivities, RefundOrder, RefundStep

STEP_SECONDS = timedelta(minutes=10)


@workflow.defn(name="RefundCharge")
class RefundCharge:
    """Carries one request to its end. Its id is the request's, so that a second start is refused."""

    @workflow.run
    async def run(self, order: RefundOrder) -> RefundStep:
        """Go on until Stripe has made the refund or refused it, or people have to decide."""
        while True:
            step: RefundStep = await workflow.execute_activity_method(
                RefundActivities.carry_refund,
                order,
                start_to_close_timeout=STEP_SECONDS,
                heartbeat_timeout=heartbeat(order.timing),
                retry_policy=forever(order.timing),
            )
            if step.is_done:
                return step
            # A timer is only a hint: the ledger's clock may be moved, so it is asked again from time to time.
            await asyncio.sleep(min(max(step.wait_seconds, 1.0), TIMINGS[order.timing].poll_max))
