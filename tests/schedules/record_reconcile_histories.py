"""Record reconcile_histories/*.json anew: `python -m tests.schedules.record_reconcile_histories`.

Do this only when a change of the launcher's commands is meant: one that waits for another reconciliation, and
whose history no longer replays, would be stuck.
"""

import asyncio
from pathlib import Path

from temporalio.client import Client, WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from tests.schedules.waiting_reconcile import WaitingReconcile
from tests.workflows.recording import write_recordings
from tests.workflows.stage import IDENTITY, sandbox
from workflows.contracts import Timing
from workflows.domain.calendar import BillingCalendar, Bills
from workflows.domain.periods import PeriodKind
from workflows.launch_reconcile import LaunchReconcile
from workflows.launch_reconcile_contracts import ReconcileOrder

FOLDER = Path(__file__).parent / "reconcile_histories"
QUEUE = "recorded-reconcile"
ORDER = ReconcileOrder(
    schedule="nightly",
    account="acct_fake",
    calendar=BillingCalendar(
        zone="Europe/Berlin", every=PeriodKind.DAY, since="2026-01-01", bills=Bills.CURRENT
    ),
    look_back_days=7,
    timing=Timing.TESTS,
)


async def record_all(address: str) -> dict[str, WorkflowHistory]:
    """One is started at once; another waits until that one has ended."""
    client = await Client.connect(address, data_converter=pydantic_data_converter, identity=IDENTITY)
    async with Worker(
        client,
        task_queue=QUEUE,
        workflows=[LaunchReconcile, WaitingReconcile],
        workflow_runner=sandbox(),
        identity=IDENTITY,
    ):
        started, waited = [
            await client.start_workflow(LaunchReconcile.run, ORDER, id=f"launch/{name}", task_queue=QUEUE)
            for name in ("started", "waited")
        ]
        report = await started.result()
        running = client.get_workflow_handle(report.workflow_id)
        while (await waited.describe()).history_length < 10:  # noqa: ASYNC110 - it waits on a timer
            await asyncio.sleep(0.1)
        await running.terminate()
        await waited.result()
        recorded = {
            "started": await started.fetch_history(), "waited": await waited.fetch_history(),
        }  # fmt: skip
        await running.terminate()
    return recorded


if __name__ == "__main__":
    asyncio.run(write_recordings(FOLDER, record_all))
