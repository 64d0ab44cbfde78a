"""Whether a run's workflow is there: the ledger says how far it is, and only Temporal whether anybody works.

A run that the ledger has not closed and whose workflow does not run any more was lost: terminated by hand, or
forgotten by Temporal. Nothing but `chargeonce run recover` carries it on, whatever timers and approvals say.
"""

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from activities.ledger.runs import RunLedger
from worker.run_view import ENDED_PHASES
from workflows.domain.errors import RefusedToStart

if TYPE_CHECKING:
    from temporalio.client import Client

ASK_SECONDS = 3.0
ASKED_AT_ONCE = 8


class WorkflowState(StrEnum):
    """What is known of a run's workflow."""

    RUNNING = "running"
    LOST = "lost"  # it does not run, and the run has not ended
    ENDED = "ended"  # as has the run
    UNKNOWN = "unknown"  # Temporal does not answer


async def workflow_state(client: "Client | None", ledger: RunLedger, run_id: str) -> WorkflowState:
    """Return what is known of the workflow of a run that has its row. Without a client nothing is."""
    if await _has_ended(ledger, run_id):
        return WorkflowState.ENDED
    runs = None if client is None else await _is_running(client, run_id)
    if runs is None:
        return WorkflowState.UNKNOWN
    if runs:
        return WorkflowState.RUNNING
    # It may have closed between the two questions: the ledger has the last word.
    return WorkflowState.ENDED if await _has_ended(ledger, run_id) else WorkflowState.LOST


async def workflow_states(ledger: RunLedger, run_ids: Sequence[str]) -> dict[str, WorkflowState]:
    """Return what is known of the workflows of several runs; Temporal is only sought if there are any."""
    client = await reach_temporal() if run_ids else None
    slots = asyncio.Semaphore(ASKED_AT_ONCE)

    async def ask(run_id: str) -> WorkflowState:
        async with slots:
            return await workflow_state(client, ledger, run_id)

    return dict(zip(run_ids, await asyncio.gather(*map(ask, run_ids)), strict=True))


async def reach_temporal() -> "Client | None":
    """Return a client, or None where Temporal does not answer within 3 s."""
    # Temporal's SDK is slow to import, and nobody asks it about runs that have ended.
    from worker.temporal_client import connect_temporal  # noqa: PLC0415 - see above

    try:
        return await connect_temporal(within_seconds=ASK_SECONDS)
    except RefusedToStart:
        return None


async def _is_running(client: "Client", run_id: str) -> bool | None:
    """Return whether the run's workflow runs now, or None where Temporal does not answer within 3 s."""
    from temporalio.service import RPCError  # noqa: PLC0415 - see above

    from worker.temporal_client import is_running  # noqa: PLC0415 - see above

    try:
        async with asyncio.timeout(ASK_SECONDS):
            return await is_running(client, run_id)
    except (RPCError, TimeoutError):
        return None


async def _has_ended(ledger: RunLedger, run_id: str) -> bool:
    run = await ledger.find(run_id)
    return run is not None and run.phase in ENDED_PHASES
