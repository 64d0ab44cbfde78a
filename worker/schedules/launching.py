"""Start the run of a firing that was missed, by the launcher that would have started it in time."""

import asyncio

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from workflows.contracts import Decision
from workflows.domain.errors import RefusedToStart
from workflows.launch import LaunchRun
from workflows.launch_contracts import LaunchOrder, LaunchOutcome, LaunchReport

# The source was looked at just now: a launcher that still waits for it tells nobody anything.
SOURCE_WAIT_SECONDS = 30.0
LAUNCH_SECONDS = 90.0


async def launch_period(
    client: Client,
    order: LaunchOrder,
    period: str,
    *,
    decided_by: Decision,
    approved_hash: str | None,
    task_queue: str,
) -> LaunchReport:
    """Start the run of one period of an order, and return what became of it.

    Of several who ask at the same moment one has started it, and the others are told that.

    Raises:
        RefusedToStart: The source or the credentials were not there, or no worker has launched it in 90 s.
    """
    told = {
        "period": period,
        "decided_by": decided_by,
        "approved_hash": approved_hash,
        "source_wait_seconds": min(order.source_wait_seconds, SOURCE_WAIT_SECONDS),
    }
    launcher = f"launch/{order.schedule}/{period}"
    try:
        handle = await client.start_workflow(
            LaunchRun.run,
            order.model_copy(update=told),
            id=launcher,
            task_queue=task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        )
    except WorkflowAlreadyStartedError:
        running = client.get_workflow_handle_for(LaunchRun.run, launcher)
        return _as_seen_by_another(await _report_of(running, period))
    return await _report_of(handle, period)


async def _report_of(handle: "WorkflowHandle[LaunchRun, LaunchReport]", period: str) -> LaunchReport:
    try:
        async with asyncio.timeout(LAUNCH_SECONDS):
            return await handle.result()
    except WorkflowFailureError as error:
        raise RefusedToStart(f"{period} could not be launched: {reason_of(error)}") from None
    except TimeoutError:
        raise RefusedToStart(
            f"no worker has launched {period}: is one running? It goes on as {handle.id}"
        ) from None


def _as_seen_by_another(report: LaunchReport) -> LaunchReport:
    """Return what a launcher reported, for somebody who wanted the same and came later."""
    if report.outcome is not LaunchOutcome.STARTED:
        return report
    reason = f"{report.run_id} has {report.period} already: somebody else launched it at the same moment"
    return report.model_copy(update={"outcome": LaunchOutcome.DUPLICATE, "reason": reason})


def reason_of(failure: WorkflowFailureError) -> str:
    """Return why a launcher failed: what the last try of its activity said."""
    error: BaseException | None = failure
    while error is not None:
        if isinstance(error, ApplicationError):
            return error.message
        error = error.__cause__
    return str(failure)
