"""Record histories/*.json anew: `python -m tests.schedules.record_histories`.

Do this only when a change of the launcher's commands is meant: a launcher waits hours for its source, and one
whose history no longer replays would be stuck.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from temporalio import activity
from temporalio.client import Client, WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from tests.schedules.waiting_run import WaitingRun
from tests.workflows.recording import write_recordings
from tests.workflows.stage import IDENTITY, sandbox
from workflows import launch_contracts
from workflows.contracts import RunRequest, Timing
from workflows.domain.calendar import BillingCalendar
from workflows.domain.periods import PeriodKind
from workflows.launch import LaunchRun
from workflows.launch_contracts import Firing, LaunchOrder, PreparedLaunch, Winner

FOLDER = Path(__file__).parent / "histories"
ACCOUNT, PERIOD = "acct_fake", "2031-03"
RUN_ID = f"billing-run/{ACCOUNT}/{PERIOD}"
REQUEST = RunRequest(
    account=ACCOUNT, period=PERIOD, run_id=RUN_ID, source="2031-03.csv", source_sha256="0" * 64,
    started_by="schedule monthly", timing=Timing.TESTS,
)  # fmt: skip
ORDER = LaunchOrder(
    schedule="monthly",
    account=ACCOUNT,
    calendar=BillingCalendar(zone="Europe/Berlin", every=PeriodKind.MONTH, since="2031-01"),
    source="{period}.csv",
    timing=Timing.TESTS,
    period=PERIOD,
)


@dataclass
class FakeLaunch(launch_contracts.LaunchActivities):
    """What the ledger and the source say, from memory."""

    prepared: PreparedLaunch = field(default_factory=lambda: PreparedLaunch(period=PERIOD, request=REQUEST))
    winner: Winner = field(default_factory=lambda: Winner(run_id=RUN_ID, phase="charging"))

    @activity.defn(name="prepare_launch")
    async def prepare_launch(self, firing: Firing) -> PreparedLaunch:  # noqa: ARG002 - the contract's
        """Say what was prepared."""
        return self.prepared

    @activity.defn(name="find_winner")
    async def find_winner(self, request: RunRequest) -> Winner:  # noqa: ARG002 - the contract's
        """Say who won."""
        return self.winner


async def record(client: Client, launch: FakeLaunch, name: str) -> WorkflowHistory:
    """Return the history of one launcher."""
    async with Worker(
        client,
        task_queue=f"recorded-{name}",
        workflows=[LaunchRun, WaitingRun],
        activities=[launch.prepare_launch, launch.find_winner],
        workflow_runner=sandbox(),
        identity=IDENTITY,
    ):
        handle = await client.start_workflow(
            LaunchRun.run, ORDER, id=f"launch/{name}", task_queue=f"recorded-{name}"
        )
        await handle.result()
        return await handle.fetch_history()


async def record_all(address: str) -> dict[str, WorkflowHistory]:
    """A run is started; it is there already; it was lost and is started again; the calendar says no."""
    client = await Client.connect(address, data_converter=pydantic_data_converter, identity=IDENTITY)
    recorded = {"started": await record(client, FakeLaunch(), "started")}
    recorded["duplicate"] = await record(client, FakeLaunch(), "duplicate")
    await client.get_workflow_handle(RUN_ID).terminate()
    lost = Winner(run_id=RUN_ID, phase="starting", lost=True)
    recorded["lost"] = await record(client, FakeLaunch(winner=lost), "lost")
    refused = PreparedLaunch(period=PERIOD, refused="schedule monthly bills from 2031-04")
    recorded["refused"] = await record(client, FakeLaunch(prepared=refused), "refused")
    await client.get_workflow_handle(RUN_ID).terminate()
    return recorded


if __name__ == "__main__":
    asyncio.run(write_recordings(FOLDER, record_all))
