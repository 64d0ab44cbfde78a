"""The launcher of a reconciliation, on a real Temporal; what it starts only begins."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import (
    Client,
    ScheduleActionExecutionStartWorkflow,
    ScheduleBackfill,
    ScheduleOverlapPolicy,
    WorkflowExecutionStatus,
    WorkflowHistory,
)
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer, Worker
from temporalio.workflow import NondeterminismError

from deploy.temporal_server import TemporalServer
from tests.schedules.launch_pad import fired_once
from tests.schedules.record_reconcile_histories import FOLDER
from tests.schedules.waiting_reconcile import WaitingReconcile
from tests.workflows.stage import sandbox
from worker.schedules.schedule_file import parse_file
from worker.schedules.sync import sync
from worker.schedules.temporal_schedules import schedule_id_of
from worker.settings import Settings
from workflows.contracts import Timing
from workflows.domain.calendar import BillingCalendar, Bills
from workflows.domain.periods import PeriodKind
from workflows.launch_reconcile import LaunchReconcile
from workflows.launch_reconcile_contracts import ReconcileLaunch, ReconcileOrder, ReconcileOutcome
from workflows.reconcile_contracts import ReconcileRequest

DEADLINE_SECONDS = 30.0
NOMINAL = datetime(2031, 3, 5, 4, 0, tzinfo=UTC)  # 05:00 in Berlin


@pytest.fixture
async def client(temporal_server: TemporalServer) -> Client:
    """Temporal."""
    return await Client.connect(temporal_server.address, data_converter=pydantic_data_converter)


@asynccontextmanager
async def working(client: Client, task_queue: str) -> AsyncIterator[None]:
    """A worker that launches, and on which reconciliations wait."""
    async with Worker(
        client,
        task_queue=task_queue,
        workflows=[LaunchReconcile, WaitingReconcile],
        workflow_runner=sandbox(),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
    ):
        yield


def order(task_queue: str, **asked: Any) -> ReconcileOrder:
    """Return an order for an account of this test's own: Temporal is shared."""
    calendar = BillingCalendar(
        zone="Europe/Berlin", every=PeriodKind.DAY, since="2026-01-01", bills=Bills.CURRENT
    )
    told = {
        "schedule": "nightly",
        "account": f"acct_{task_queue.replace('-', '_')}",
        "calendar": calendar,
        "look_back_days": 7,
        "timing": Timing.TESTS,
    }
    return ReconcileOrder.model_validate(told | asked)


async def request_of(client: Client, workflow_id: str) -> ReconcileRequest:
    """Return what a reconciliation was started with."""
    history = await client.get_workflow_handle(workflow_id).fetch_history()
    payloads = history.events[0].workflow_execution_started_event_attributes.input.payloads
    [request] = await client.data_converter.decode(payloads, [ReconcileRequest])
    assert isinstance(request, ReconcileRequest)
    return request


async def launch(client: Client, task_queue: str, wanted: ReconcileOrder, name: str) -> ReconcileLaunch:
    """Launch, and return the report."""
    return await client.execute_workflow(
        LaunchReconcile.run, wanted, id=f"launch-{name}/{task_queue}", task_queue=task_queue
    )


async def test_a_firing_compares_what_was_sent_in_the_days_before(client: Client, task_queue: str) -> None:
    """A schedule of the file fires, and its reconciliation begins look_back_days before the nominal time."""
    account = f"acct_{task_queue.replace('-', '_')}"
    name = f"nightly-{task_queue[-12:]}"
    row = {"name": name, "account": account, "zone": "Europe/Berlin", "look_back_days": 3, "repair": True}
    file = parse_file({"reconcile": [row]}, Path("/billing"), "schedules.toml")
    settings = Settings(database_url="postgresql://nobody@localhost/none", task_queue=task_queue)
    [synced] = await sync(client, file.reconciles, settings)
    assert synced.change == "created"
    handle = client.get_schedule_handle(schedule_id_of(name))
    try:
        async with working(client, task_queue):
            await handle.backfill(
                ScheduleBackfill(
                    start_at=NOMINAL,
                    end_at=NOMINAL + timedelta(seconds=1),
                    overlap=ScheduleOverlapPolicy.BUFFER_ALL,
                )
            )
            [fired] = await fired_once(handle, 1, deadline_seconds=DEADLINE_SECONDS)
            assert isinstance(fired, ScheduleActionExecutionStartWorkflow)
            launcher = client.get_workflow_handle_for(LaunchReconcile.run, fired.workflow_id)
            report = await launcher.result()
    finally:
        await handle.delete()
    assert (report.outcome, report.workflow_id) == (ReconcileOutcome.STARTED, f"reconcile/{account}")
    request = await request_of(client, report.workflow_id)
    assert request.since_epoch_seconds == (NOMINAL - timedelta(days=3)).timestamp()
    assert (request.until_epoch_seconds, request.run_id, request.repair) == (None, None, True)
    assert request.decided_by.who == f"schedule {name}"
    await client.get_workflow_handle(report.workflow_id).terminate()


async def test_a_firing_waits_for_the_reconciliation_that_is_under_way(
    client: Client, task_queue: str
) -> None:
    """Of one account there is one at a time; the next begins when it has ended, and outlives its launcher."""
    wanted = order(task_queue)
    async with working(client, task_queue):
        first = await launch(client, task_queue, wanted, "first")
        running = client.get_workflow_handle(first.workflow_id)
        begun = (await running.describe()).run_id
        second = asyncio.create_task(launch(client, task_queue, wanted, "second"))
        done, _ = await asyncio.wait({second}, timeout=2)
        assert not done
        assert (await running.describe()).run_id == begun
        await running.terminate()
        report = await asyncio.wait_for(second, DEADLINE_SECONDS)
    assert report.outcome is ReconcileOutcome.STARTED
    described = await client.get_workflow_handle(report.workflow_id).describe()
    assert described.run_id != begun
    assert described.status is WorkflowExecutionStatus.RUNNING
    await client.get_workflow_handle(report.workflow_id).terminate()


async def replay(text: str) -> None:
    """Replay as the project's worker would; raises where it does not fit."""
    replayer = Replayer(
        workflows=[LaunchReconcile], workflow_runner=sandbox(), data_converter=pydantic_data_converter
    )
    await replayer.replay_workflow(WorkflowHistory.from_json("launch/recorded", text))


@pytest.mark.parametrize("name", ["started", "waited"])
async def test_a_recorded_launcher_replays(name: str) -> None:
    """A launcher that began under an earlier version, and waits, goes on under this one."""
    await replay((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


async def test_a_launcher_of_another_shape_would_be_noticed() -> None:
    """A history whose reconciliation has another id does not replay."""
    recorded = (FOLDER / "started.json").read_text(encoding="utf-8")
    changed = recorded.replace("reconcile/acct_fake", "reconcile/acct_other")
    assert changed != recorded
    with pytest.raises(NondeterminismError):
        await replay(changed)
