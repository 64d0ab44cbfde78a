"""A backfill after a run that does not simply end: nothing more is started, and it says what was."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.processes.test_waiting import closed_run
from worker import backfill
from worker.backfill import BackfillCommand
from worker.console_output import Output
from worker.failures import EXIT_FAILED, EXIT_REFUSED, CommandFailed
from worker.run_view import RunView
from worker.waiting import Waited
from workflows.domain.errors import RefusedToStart

MONTHS = ("2031-01", "2031-02", "2031-03")


def start(monkeypatch: pytest.MonkeyPatch, *, fails_at: str | None = None, **run: Any) -> CommandFailed:
    """Bill three months, whose runs all stand like `run` when waiting is over; return how it ended."""

    async def connect() -> None:
        return None

    async def begin(*given: Any) -> Any:
        if (label := given[-1].label) == fails_at:
            raise RefusedToStart(f"no credentials for {label}")
        return SimpleNamespace(id=f"run of {label}")

    async def wait(*_: Any, **__: Any) -> Waited:
        view = RunView("run", replace(closed_run(), **run), {}, None)
        return Waited(view, 1.0, 1.0)

    monkeypatch.setattr(backfill, "connect_temporal", connect)
    monkeypatch.setattr(backfill, "start_run", begin)
    monkeypatch.setattr(backfill, "wait_for_run", wait)
    monkeypatch.setattr(backfill, "replace", lambda options, **_: options)
    command = BackfillCommand(
        first=MONTHS[0], last=MONTHS[-1], source="{period}.csv", account=None, yes=True, approve=None,
        preview=False, together=False, wait=False, skip_invalid=False, below_minimum="charge",
        canary_lines=0, canary_declined_percent_max=None, retry_policy=None, slice_lines=500, live=False,
        customers=Path("x"),
    )  # fmt: skip
    started = backfill._Backfill(Output(as_json=True), cast("Any", None), cast("Any", None), command)
    due = [
        backfill._Due(label, cast("Any", None), cast("Any", SimpleNamespace(label=label))) for label in MONTHS
    ]
    with pytest.raises(CommandFailed) as failed:
        asyncio.run(started.start(due, cast("Any", None), {}))
    return failed.value


@pytest.mark.parametrize("hold", ["paused", "canary", "cap", "breaker"])
def test_a_held_run_ends_a_backfill(monkeypatch: pytest.MonkeyPatch, hold: str) -> None:
    """Whatever holds the first period's run, the next period is not charged meanwhile."""
    error = start(monkeypatch, phase="charging", hold=hold, hold_reason="to look")
    assert f"run of 2031-01 is held ({hold}: to look); no later period was started" in str(error)
    assert error.exit_code == EXIT_FAILED
    assert error.details["started"] == ["run of 2031-01"]
    assert error.details["unstarted"] == list(MONTHS[1:])


def test_a_backfill_that_fails_midway_says_what_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script is told which runs there are and which periods have none, whatever ended the backfill."""
    error = start(monkeypatch, fails_at=MONTHS[1])
    assert (str(error), error.exit_code) == ("no credentials for 2031-02", EXIT_REFUSED)
    assert error.details == {"started": ["run of 2031-01"], "unstarted": list(MONTHS[1:])}
