"""A run on a real Temporal server over fake activities, and what its histories say."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle, WorkflowHistory, WorkflowUpdateFailedError
from temporalio.common import WorkflowIDReusePolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from tests.workflows.fake_ledger import DEADLINE_SECONDS, FakeLedger
from tests.workflows.fakes import fake_activities
from worker.temporal import PASSED_THROUGH
from workflows.billing_run import BillingRun
from workflows.contracts import Decision, RunInput, RunProgress, RunReport, RunRequest, Standing, Timing
from workflows.notify import DeliverNotifications
from workflows.policies import TIMINGS

ACCOUNT = "acct_fake"
PERIOD = "2031-03"
IDENTITY = "chargeonce-tests"
WHO = "ops@host"

RunHandle = WorkflowHandle[BillingRun, RunReport]


def sandbox() -> SandboxedWorkflowRunner:
    """Return the sandbox that the project's worker runs workflows in."""
    return SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH)
    )


async def connect(address: str) -> Client:
    """Connect under a name that says nothing of this machine: it is written into every history."""
    return await Client.connect(address, data_converter=pydantic_data_converter, identity=IDENTITY)


def build_worker(client: Client, task_queue: str, activities: Sequence[Callable[..., Any]]) -> Worker:
    """Return a worker of the workflow over these activities."""
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[BillingRun, DeliverNotifications],
        activities=activities,
        workflow_runner=sandbox(),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=TIMINGS[Timing.TESTS].sticky_queue),
        disable_eager_activity_execution=True,
        identity=IDENTITY,
    )


@dataclass
class Stage:
    """One task queue with a worker over `ledger`."""

    client: Client
    task_queue: str
    ledger: FakeLedger

    @property
    def run_id(self) -> str:
        """A Temporal server is shared by tests, so the id carries the test's queue."""
        return f"billing-run/{ACCOUNT}/{PERIOD}/{self.task_queue}"

    async def start(
        self, *, timing: Timing = Timing.TESTS, slices_at_once: int = 4, **asked: Any
    ) -> RunHandle:
        """Start the run as the command line does, asked for with these fields of its request."""
        request = RunRequest(
            account=ACCOUNT,
            period=PERIOD,
            run_id=self.run_id,
            source="charges.csv",
            source_sha256="0" * 64,
            started_by="a test",
            slices_at_once=slices_at_once,
            timing=timing,
            **asked,
        )
        return await self.client.start_workflow(
            BillingRun.run,
            RunInput(request=request),
            id=self.run_id,
            task_queue=self.task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        )

    async def histories(self, handle: RunHandle) -> list[WorkflowHistory]:
        """Return the history of each execution of the run, in order."""
        found, execution = [], handle.first_execution_run_id
        while execution:
            history = await self.client.get_workflow_handle(handle.id, run_id=execution).fetch_history()
            found.append(history)
            ended = history.events[-1]
            execution = ended.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
        return found


@asynccontextmanager
async def open_stage(address: str, task_queue: str, ledger: FakeLedger) -> AsyncIterator[Stage]:
    """Yield a stage whose worker runs."""
    client = await connect(address)
    async with build_worker(client, task_queue, fake_activities(ledger)):
        yield Stage(client, task_queue, ledger)


async def finish(handle: RunHandle) -> RunReport:
    """Return the run's report. Raises TimeoutError where it does not end within 30 s."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        return await handle.result()


async def tick(handle: RunHandle) -> RunProgress:
    """Wake the run."""
    progress: RunProgress = await handle.execute_update("tick", result_type=RunProgress)
    return progress


async def decide(handle: RunHandle, update: str, decision: Decision | None = None) -> Standing:
    """Send an update; without a decision of its own, one by ops@host for a good reason."""
    standing: Standing = await handle.execute_update(
        update, decision or Decision(who=WHO, reason="a good reason"), result_type=Standing
    )
    return standing


async def refusal(handle: RunHandle, update: str, decision: Decision | None = None) -> str:
    """Send an update that is to be refused, and return why it was."""
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await decide(handle, update, decision)
    cause = refused.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == "Refused"
    return cause.message


async def progress_once(handle: RunHandle, holds: Callable[[RunProgress], bool]) -> RunProgress:
    """Ask for progress until `holds` holds of it, and return it. Raises TimeoutError after 30 s."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            progress = await handle.query(BillingRun.progress)
            if holds(progress):
                return progress
            await asyncio.sleep(0.02)


def count(history: WorkflowHistory, kind: "EventType.ValueType") -> int:
    """Return how many events of a kind there are."""
    return sum(event.event_type == kind for event in history.events)


def count_scheduled(history: WorkflowHistory, activity_name: str) -> int:
    """Return how often an activity was scheduled; attempts of one scheduling count once."""
    return sum(
        event.activity_task_scheduled_event_attributes.activity_type.name == activity_name
        for event in history.events
    )


def open_at_once_max(history: WorkflowHistory, activity_name: str) -> int:
    """Return the largest number of activities of that name that were ever scheduled and not yet ended."""
    scheduled: set[int] = set()
    most = 0
    for event in history.events:
        if event.activity_task_scheduled_event_attributes.activity_type.name == activity_name:
            scheduled.add(event.event_id)
            most = max(most, len(scheduled))
        scheduled.discard(_ended_activity(event))
    return most


def _ended_activity(event: HistoryEvent) -> int:
    return (
        event.activity_task_completed_event_attributes.scheduled_event_id
        or event.activity_task_failed_event_attributes.scheduled_event_id
    )
