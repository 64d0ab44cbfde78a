"""Waiting with a run ends when the run has, whatever became of the connection to Temporal."""

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from temporalio.service import RPCError, RPCStatusCode

from activities.ledger.runs import Run, RunLedger
from worker import waiting
from worker.run_view import RunView
from worker.temporal_client import RunHandle
from worker.waiting import wait_for_run

RUN_ID = "billing-run/acct_1/2031-03"


class GoneTemporal:
    """A handle at an address where no server is any more."""

    id = RUN_ID

    async def result(self) -> Any:
        """Fail as the SDK does."""
        raise RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")


class NoDisplay:
    """Shows nothing."""

    def update(self, view: RunView) -> None:
        """Do nothing."""


def closed_run() -> Run:
    """Return a closed run of three lines."""
    at = datetime(2031, 4, 1, tzinfo=UTC)
    return Run(
        run_id=RUN_ID,
        account="acct_1",
        period="2031-03",
        owner="execution-1",
        phase="closed",
        source="charges.csv",
        started_by="tests",
        selected=3,
        slices=1,
        plan_hash="0" * 64,
        reason=None,
        locked_at=at,
        planned_at=at,
        closed_at=at,
        counts={"succeeded": 3},
    )


async def test_a_run_that_the_ledger_has_closed_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporal may have moved or ended: `closed` in the ledger is the end all the same, seconds later."""
    closed = RunView(RUN_ID, closed_run(), {"succeeded": 3}, None)

    async def view_run(_ledger: RunLedger, _run_id: str) -> RunView:
        return closed

    monkeypatch.setattr(waiting, "view_run", view_run)
    monkeypatch.setattr(waiting, "RESULT_SECONDS", 0.1)
    async with asyncio.timeout(30):
        waited = await wait_for_run(
            cast("RunLedger", None), cast("RunHandle", GoneTemporal()), display=NoDisplay(), notice=print
        )
    assert waited.ended
    assert waited.view is closed
