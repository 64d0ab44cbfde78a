"""What waits to be told and has nobody to tell it, found again and again and given a new deliverer.

A run's workflow starts a deliverer after the write that says what is to be told. Where it was terminated in
between, or the deliverer was, nobody else comes: workers look for such notifications beside all else they do.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from activities.ledger.notifications import NotificationLedger, Retried
from worker.settings import Settings
from worker.temporal_client import is_running
from workflows.contracts import RunKey
from workflows.notify import DeliverNotifications
from workflows.notify_contracts import DeliveryRequest

UNATTENDED_SECONDS = 30.0  # by then a deliverer that was started has taken what it was started for

_LOG = logging.getLogger("chargeonce.notify")


@asynccontextmanager
async def attending(client: Client, ledger: NotificationLedger, settings: Settings) -> AsyncIterator[None]:
    """Look for what nobody delivers while the block runs; 0 seconds between looks means not here."""
    if settings.notify_sweep_seconds == 0:
        yield
        return
    task = asyncio.create_task(_attend_forever(client, ledger, settings))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _attend_forever(client: Client, ledger: NotificationLedger, settings: Settings) -> None:
    while True:
        try:
            await attend(client, ledger, settings, after_seconds=UNATTENDED_SECONDS)
        except Exception as error:  # noqa: BLE001 - what waits goes on waiting, and the next look may go better
            _LOG.warning(json.dumps({"event": "notifications_not_attended", "error": type(error).__name__}))
        await asyncio.sleep(settings.notify_sweep_seconds)


async def attend(
    client: Client, ledger: NotificationLedger, settings: Settings, *, after_seconds: float
) -> list[str]:
    """Start deliverers for what has waited so long with no deliverer that runs, and return their ids."""
    started = []
    for unattended in await ledger.unattended(after_seconds):
        if unattended.deliverer is not None:
            if await is_running(client, unattended.deliverer):
                continue
            await ledger.release(unattended.deliverer)
        run = RunKey(run_id=unattended.run_id, account=unattended.account)
        deliverer = f"notify/{run.run_id}/after-{unattended.newest}"
        if await _start(client, settings, run, deliverer, WorkflowIDConflictPolicy.FAIL):
            started.append(deliverer)
    return started


async def deliver_again(client: Client, settings: Settings, retried: Retried) -> None:
    """Start a deliverer for what waits anew, in place of those that may pause for an hour."""
    for deliverer in retried.deliverers:
        with suppress(RPCError):  # it has ended
            await client.get_workflow_handle(deliverer).terminate("its notifications are retried")
    run = RunKey(run_id=retried.run_id, account=retried.account)
    again = f"notify/{run.run_id}/retry"
    await _start(client, settings, run, again, WorkflowIDConflictPolicy.TERMINATE_EXISTING)


async def _start(
    client: Client, settings: Settings, run: RunKey, deliverer: str, conflict: WorkflowIDConflictPolicy
) -> bool:
    try:
        await client.start_workflow(
            DeliverNotifications.run,
            DeliveryRequest(run=run, timing=settings.timing),
            id=deliverer,
            task_queue=settings.task_queue,
            id_conflict_policy=conflict,
        )
    except WorkflowAlreadyStartedError:
        return False
    return True
