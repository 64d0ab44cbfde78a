"""Record histories/*.json anew: `python -m tests.reconcile.record_histories`.

Do this only when a change of the workflows' commands is meant: a refund may wait for a day, and one whose
history no longer replays would be stuck.
"""

import asyncio
from pathlib import Path

from temporalio.client import WorkflowHistory

from tests.reconcile.fake_books import ORDER, REQUEST, FakeBooks, FakeRefunds, build_worker
from tests.workflows.recording import write_recordings
from tests.workflows.stage import connect
from workflows.reconcile import Reconcile
from workflows.refund import RefundCharge

FOLDER = Path(__file__).parent / "histories"


async def record_all(address: str) -> dict[str, WorkflowHistory]:
    """A scan, and lists of customers; a refund at once, and one that waits."""
    client = await connect(address)
    recorded = {}
    for name, books in {"scanned": FakeBooks(), "customers_listed": FakeBooks(slices=0)}.items():
        async with build_worker(client, f"recorded-{name}", books.activities):
            reconcile = await client.start_workflow(
                Reconcile.run, REQUEST, id=f"reconcile/{name}", task_queue=f"recorded-{name}"
            )
            await reconcile.result()
            recorded[name] = await reconcile.fetch_history()
    for name, refunds in {"refunded": FakeRefunds(), "waited": FakeRefunds(steps=3)}.items():
        async with build_worker(client, f"recorded-{name}", refunds.activities):
            refund = await client.start_workflow(
                RefundCharge.run, ORDER, id=f"refund/{name}", task_queue=f"recorded-{name}"
            )
            await refund.result()
            recorded[name] = await refund.fetch_history()
    return recorded


if __name__ == "__main__":
    asyncio.run(write_recordings(FOLDER, record_all))
