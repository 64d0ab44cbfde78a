"""Stay with a reconciliation until its report is there, and say meanwhile how it goes and what keeps it."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta

from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError

from activities.ledger.drift import DriftLedger
from worker.console_output import Output
from worker.failures import EXIT_FAILED, CommandFailed
from worker.temporal_client import QUERY_SECONDS, read_trouble
from worker.waiting import NOBODY_WORKS_SECONDS, result_of
from workflows.domain.counted import counted
from workflows.reconcile import Reconcile
from workflows.reconcile_contracts import ReconcileReport

ReconcileHandle = WorkflowHandle[Reconcile, ReconcileReport]
LOOK_SECONDS = 2.0
PROGRESS_SECONDS = 5.0
SEE = "chargeonce reconcile list"
_LOOKED_THROUGH = 50


async def await_report(output: Output, handle: ReconcileHandle, ledger: DriftLedger) -> ReconcileReport:
    """Return the report once there is one. Ctrl-C ends the waiting alone, and says so.

    Raises:
        CommandFailed: 1: the workflow ended without a report.
    """
    result = asyncio.ensure_future(result_of(handle))
    try:
        await _tell_if_nobody_works(handle, result, ledger, output.notice)
        await _watch(handle, result, output.notice)
        return ReconcileReport.model_validate(result.result())
    except asyncio.CancelledError:
        output.notice(f"{handle.id} goes on without this command: {SEE}")
        raise
    except (WorkflowFailureError, RPCError) as error:
        cause = error.cause if isinstance(error, WorkflowFailureError) else "Temporal does not know it"
        raise CommandFailed(
            f"{handle.id} ended without a report ({cause}); what it found stands in the ledger: {SEE}",
            exit_code=EXIT_FAILED,
            details={"workflow": handle.id},
        ) from error
    finally:
        result.cancel()
        await asyncio.gather(result, return_exceptions=True)


async def await_the_end(handle: ReconcileHandle, notice: Callable[[str], None]) -> None:
    """Return once a reconciliation has ended, in whatever way."""
    result = asyncio.ensure_future(result_of(handle))
    try:
        await _watch(handle, result, notice)
    finally:
        result.cancel()
        await asyncio.gather(result, return_exceptions=True)


async def _tell_if_nobody_works(
    handle: ReconcileHandle,
    result: "asyncio.Future[object]",
    ledger: DriftLedger,
    notice: Callable[[str], None],
) -> None:
    await asyncio.wait({result}, timeout=NOBODY_WORKS_SECONDS)
    if result.done():
        return
    newest = await ledger.newest(_LOOKED_THROUGH)
    if not any(one.phase == "open" and one.workflow_id == handle.id for one in newest):
        notice(f"no worker has picked {handle.id} up yet: is one running (`chargeonce worker`)?")


async def _watch(
    handle: ReconcileHandle, result: "asyncio.Future[object]", notice: Callable[[str], None]
) -> None:
    """Return when the result is there; say once each what a person would wonder about meanwhile."""
    began, told_at, said = time.monotonic(), time.monotonic(), set[str]()
    while not result.done():
        await asyncio.wait({result}, timeout=LOOK_SECONDS)
        now = time.monotonic()
        trouble = None if result.done() else await read_trouble(handle)
        if trouble is not None and trouble not in said:
            said.add(trouble)
            notice(f"tried again until it works: {trouble}")
        if not result.done() and now - told_at > PROGRESS_SECONDS:
            told_at = now
            notice(f"{now - began:.0f} s: {await _describe_progress(handle)}")


async def _describe_progress(handle: ReconcileHandle) -> str:
    try:
        progress = await handle.query(Reconcile.progress, rpc_timeout=timedelta(seconds=QUERY_SECONDS))
    except Exception:  # noqa: BLE001 - a courtesy: the report comes without it
        return "no worker answers for it just now"
    scanned = f", {progress.slices_done} of {progress.slices} slices" if progress.slices else ""
    left = f", {progress.left} of {progress.suspects} left to look at" if progress.suspects else ""
    return f"{progress.step}, {counted(progress.charges, 'charge')}{scanned}{left}"
