"""A launcher on a real Temporal and a real ledger; the runs that it starts only take their lock."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from temporalio.client import Client, ScheduleActionExecutionStartWorkflow, ScheduleHandle, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from activities.accounts import Accounts
from activities.launch import LaunchActivities
from activities.ledger.calendar import CalendarLedger
from activities.ledger.database import Pool
from activities.ledger.runs import RunLedger
from tests.schedules.waiting_run import WaitingRun
from tests.workflows.stage import sandbox
from workflows.contracts import Timing
from workflows.domain.calendar import BillingCalendar
from workflows.domain.errors import RefusedToStart
from workflows.domain.periods import PeriodKind
from workflows.launch import LaunchRun
from workflows.launch_contracts import LaunchOrder, LaunchReport

CALENDAR = BillingCalendar(zone="Europe/Berlin", every=PeriodKind.MONTH, since="2031-01")


class KnownAccounts(Accounts):
    """The credentials for one account, and for no other."""

    def __init__(self, account: str) -> None:
        self._known = account

    async def choose(self, named: str | None) -> str:
        """Return the account that is known."""
        if named != self._known:
            raise RefusedToStart(f"there are no credentials for {named}")
        return named


async def fired_once(
    handle: ScheduleHandle, count: int, *, deadline_seconds: float
) -> list[ScheduleActionExecutionStartWorkflow]:
    """Return what a schedule has started, once it has started so many, which are ten at most.

    Between two orders to a schedule this has to be waited for: Temporal forgets the first of two that reach
    it in one step, and of two equal backfills that wait the second.
    """
    async with asyncio.timeout(deadline_seconds):
        while len(actions := (await handle.describe()).info.recent_actions) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    started = [fired.action for fired in actions]
    assert all(isinstance(one, ScheduleActionExecutionStartWorkflow) for one in started)
    return cast("list[ScheduleActionExecutionStartWorkflow]", started)


async def reported(client: Client, fired: ScheduleActionExecutionStartWorkflow) -> LaunchReport:
    """Return what a launcher that a schedule has started reported, once it has."""
    launcher = client.get_workflow_handle_for(
        LaunchRun.run, fired.workflow_id, run_id=fired.first_execution_run_id
    )
    return await launcher.result()


@dataclass
class LaunchPad:
    """Orders for one account, and what became of them."""

    client: Client
    pool: Pool
    task_queue: str
    folder: Path

    @property
    def account(self) -> str:
        """Temporal is shared by tests, so the account carries the test's queue."""
        return f"acct_{self.task_queue.replace('-', '_')}"

    def order(self, **asked: Any) -> LaunchOrder:
        """Return an order for monthly runs over files of the folder."""
        told = {
            "schedule": "monthly",
            "account": self.account,
            "calendar": CALENDAR,
            "source": f"{self.folder}/{{period}}.csv",
            "source_wait_seconds": 3,
            "timing": Timing.TESTS,
        }
        return LaunchOrder.model_validate(told | asked)

    def write(self, period: str, *rows: str) -> None:
        """Write the source of a period, one line a customer."""
        text = "\n".join(["customer,currency,amount,payment_method", *rows])
        (self.folder / f"{period}.csv").write_text(f"{text}\n")

    async def launch(
        self, order: LaunchOrder, name: str = "launch"
    ) -> "WorkflowHandle[LaunchRun, LaunchReport]":
        """Start a launcher."""
        return await self.client.start_workflow(
            LaunchRun.run, order, id=f"{name}/{self.task_queue}", task_queue=self.task_queue
        )

    async def lock(self, period: str, run_id: str | None = None, *, phase: str = "locked") -> str:
        """Have a run of the period in the ledger, locked or failed."""
        run_id = run_id or f"billing-run/{self.account}/{period}"
        ledger = RunLedger(self.pool)
        await ledger.lock(
            run_id, account=self.account, period=period, owner=f"owner of {run_id}", source="x",
            source_sha256="0", started_by="somebody else",
        )  # fmt: skip
        if phase == "failed":
            await ledger.fail(run_id, "the source has changed")
        return run_id


@asynccontextmanager
async def open_pad(address: str, pool: Pool, task_queue: str, folder: Path) -> AsyncIterator[LaunchPad]:
    """Yield a launch pad whose worker runs."""
    client = await Client.connect(address, data_converter=pydantic_data_converter)
    pad = LaunchPad(client, pool, task_queue, folder)
    launch = LaunchActivities(
        calendar=CalendarLedger(pool),
        runs=RunLedger(pool),
        accounts=KnownAccounts(pad.account),
        client=client,
    )
    async with Worker(
        client,
        task_queue=task_queue,
        workflows=[LaunchRun, WaitingRun],
        activities=[launch.prepare_launch, launch.find_winner],
        workflow_runner=sandbox(),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
    ):
        yield pad
