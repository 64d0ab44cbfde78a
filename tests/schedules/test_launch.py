import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.client import (
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleBackfill,
    ScheduleOverlapPolicy,
    ScheduleState,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.service import RPCError

from activities.ledger.calendar import CalendarLedger, PeriodDecision
from activities.ledger.database import open_pool
from deploy.postgres import Database
from deploy.temporal_server import TemporalServer
from tests.schedules.launch_pad import CALENDAR, LaunchPad, fired_once, open_pad, reported
from worker.schedules.launching import launch_period, reason_of
from worker.schedules.temporal_spec import policy_of, spec_of
from workflows.contracts import Decision, RunInput
from workflows.domain.anchors import Anchor
from workflows.domain.calendar import BillingCalendar
from workflows.domain.periods import Period, PeriodKind
from workflows.launch import LaunchRun
from workflows.launch_contracts import LaunchOrder, LaunchOutcome, LaunchReport

DEADLINE_SECONDS = 30.0
ROW = "cus_1,usd,10.00,pm_card_visa_1"


@pytest.fixture
async def pad(
    database: Database, temporal_server: TemporalServer, task_queue: str, tmp_path: Path
) -> AsyncIterator[LaunchPad]:
    """A worker that launches, and a source for March."""
    async with (
        open_pool(database.app_url, connections=4) as pool,
        open_pad(temporal_server.address, pool, task_queue, tmp_path) as opened,
    ):
        opened.write("2031-03", ROW)
        yield opened


async def report_of(pad: LaunchPad, order: LaunchOrder, name: str = "launch") -> LaunchReport:
    """Launch, and return what became of it."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        return await (await pad.launch(order, name)).result()


async def request_of(pad: LaunchPad, run_id: str) -> RunInput:
    """Return what a run was started with."""
    history = await pad.client.get_workflow_handle(run_id).fetch_history()
    started = history.events[0].workflow_execution_started_event_attributes
    [asked] = await pad.client.data_converter.decode(list(started.input.payloads), [RunInput])
    assert isinstance(asked, RunInput)
    return asked


async def test_a_launcher_names_the_run_and_ends_before_it(pad: LaunchPad) -> None:
    """The run has the id that refuses a second one, knows its source by hash, and outlives its launcher."""
    report = await report_of(pad, pad.order(period="2031-03", approve_within_minor={"usd": 5_000}))
    run_id = f"billing-run/{pad.account}/2031-03"
    assert (report.outcome, report.run_id, report.period) == (LaunchOutcome.STARTED, run_id, "2031-03")
    described = await pad.client.get_workflow_handle(run_id).describe()
    assert described.status is WorkflowExecutionStatus.RUNNING
    request = (await request_of(pad, run_id)).request
    assert (request.account, request.period, request.run_id) == (pad.account, "2031-03", run_id)
    assert request.source == str(pad.folder / "2031-03.csv")
    assert len(request.source_sha256) == 64
    assert (request.started_by, request.approve_any, request.approve_within_minor) == (
        "schedule monthly", False, {"usd": 5_000},
    )  # fmt: skip
    await pad.client.get_workflow_handle(run_id).terminate()


async def test_a_second_launcher_is_told_who_won(pad: LaunchPad) -> None:
    """Whether the first run is at Temporal only, or in the ledger only: the loser names it."""
    order = pad.order(period="2031-03")
    first = await report_of(pad, order)
    assert first.run_id is not None
    second = await report_of(pad, order)
    assert (second.outcome, second.run_id, second.phase) == (
        LaunchOutcome.DUPLICATE,
        first.run_id,
        "starting",
    )
    await pad.client.get_workflow_handle(first.run_id).terminate()
    locked = await pad.lock("2031-04")
    third = await report_of(pad, pad.order(period="2031-04"))
    assert (third.outcome, third.run_id, third.phase) == (LaunchOutcome.DUPLICATE, locked, "locked")
    assert third.reason is not None
    assert locked in third.reason


async def test_of_two_sweeps_at_once_one_has_started_the_run(pad: LaunchPad) -> None:
    """Both want the same launcher: the one that came later is told that somebody else has started the run."""
    decided = Decision(who="oncall@desk", reason="it was missed")
    async with asyncio.timeout(DEADLINE_SECONDS):
        reports = await asyncio.gather(
            *(
                launch_period(
                    pad.client, pad.order(), "2031-03", decided_by=decided, approved_hash=None,
                    task_queue=pad.task_queue,
                )
                for _ in range(5)
            )
        )  # fmt: skip
    run_id = f"billing-run/{pad.account}/2031-03"
    assert Counter(report.outcome for report in reports) == {
        LaunchOutcome.STARTED: 1,
        LaunchOutcome.DUPLICATE: 4,
    }
    assert {report.run_id for report in reports} == {run_id}
    losers = [report for report in reports if report.outcome is LaunchOutcome.DUPLICATE]
    assert all(report.reason is not None and run_id in report.reason for report in losers)
    await pad.client.get_workflow_handle(run_id).terminate()


async def test_a_run_lost_before_its_lock_keeps_no_period(pad: LaunchPad) -> None:
    """A workflow that was terminated without a row charged nobody: its id is used again."""
    order = pad.order(period="2031-03")
    first = await report_of(pad, order)
    assert first.run_id is not None
    await pad.client.get_workflow_handle(first.run_id).terminate("lost")
    second = await report_of(pad, order)
    assert (second.outcome, second.run_id) == (LaunchOutcome.STARTED, first.run_id)
    await pad.client.get_workflow_handle(first.run_id).terminate()


async def test_a_run_that_failed_leaves_its_period(pad: LaunchPad) -> None:
    """It never had a plan, so the next one of the period is /r2."""
    failed = await pad.lock("2031-03", phase="failed")
    report = await report_of(pad, pad.order(period="2031-03"))
    assert (report.outcome, report.run_id) == (LaunchOutcome.STARTED, f"{failed}/r2")
    await pad.client.get_workflow_handle(f"{failed}/r2").terminate()


async def test_a_launcher_waits_for_its_source(pad: LaunchPad) -> None:
    """An export that comes late, or that is still empty, is waited for; nothing owns the period meanwhile."""
    pad.write("2031-05")
    launcher = await pad.launch(pad.order(period="2031-05", source_wait_seconds=60))
    run_id = f"billing-run/{pad.account}/2031-05"
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not (await launcher.describe()).raw_description.pending_activities:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    with pytest.raises(RPCError, match="not found"):
        await pad.client.get_workflow_handle(run_id).describe()
    pad.write("2031-05", ROW)
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert (await launcher.result()).outcome is LaunchOutcome.STARTED
    await pad.client.get_workflow_handle(run_id).terminate()


@pytest.mark.parametrize(
    ("asked", "told"),
    [({}, "can't be read"), ({"account": "acct_stranger"}, "no credentials for acct_stranger")],
)
async def test_a_launcher_gives_up_with_the_reason(pad: LaunchPad, asked: dict[str, str], told: str) -> None:
    """Where the source or the credentials do not come in time, the launcher fails and says which."""
    with pytest.raises(WorkflowFailureError) as failed:
        await report_of(pad, pad.order(period="2031-06", source_wait_seconds=1, **asked))
    assert told in reason_of(failed.value)


async def test_what_no_waiting_mends_is_not_waited_for(pad: LaunchPad) -> None:
    """A source of no known kind fails its launcher at the first try, however long it may wait."""
    with pytest.raises(WorkflowFailureError) as failed:
        await report_of(pad, pad.order(period="2031-03", source="{period}.doc", source_wait_seconds=3_600))
    assert "of no known kind" in reason_of(failed.value)


async def test_a_period_outside_the_calendar_is_refused(pad: LaunchPad) -> None:
    """A firing before `since` starts nothing, and says why."""
    report = await report_of(pad, pad.order(period="2030-12"))
    assert (report.outcome, report.run_id) == (LaunchOutcome.REFUSED, None)
    assert report.reason == "schedule monthly bills from 2031-01 until further notice"


async def test_a_waived_period_is_billed_by_nobody_but_a_person(pad: LaunchPad) -> None:
    """A firing that comes after somebody waived its period starts nothing; a later decision to bill does."""
    waive = ("finance@desk", "billed by hand")
    await CalendarLedger(pad.pool).decide(
        pad.account, "2031-03", PeriodDecision.WAIVE, schedule="monthly", who=waive[0], reason=waive[1]
    )
    report = await report_of(pad, pad.order(period="2031-03"))
    assert (report.outcome, report.run_id) == (LaunchOutcome.REFUSED, None)
    assert report.reason == "waived by finance@desk: billed by hand"
    decision = Decision(who="ops@desk", reason="it was not")
    billed = await report_of(pad, pad.order(period="2031-03", decided_by=decision))
    assert billed.run_id is not None
    assert billed.outcome is LaunchOutcome.STARTED
    await pad.client.get_workflow_handle(billed.run_id).terminate()


async def test_what_a_person_decided_goes_with_the_run(pad: LaunchPad) -> None:
    """A sweep's run is started by whoever decided it, and approved by the hash that they saw."""
    decision = Decision(who="finance@desk", reason="March was missed")
    report = await report_of(pad, pad.order(period="2031-03", approved_hash="ab", decided_by=decision))
    assert report.run_id is not None
    request = (await request_of(pad, report.run_id)).request
    assert (request.started_by, request.approved_hash) == ("finance@desk, for schedule monthly", "ab")
    await pad.client.get_workflow_handle(report.run_id).terminate()


async def launches_of(pad: LaunchPad, order: LaunchOrder, *slots: datetime) -> list[LaunchReport]:
    """Have Temporal fire a schedule's nominal times, each twice, and return what its launchers reported."""
    schedule_id = f"chargeonce/{pad.task_queue}"
    action = ScheduleActionStartWorkflow(
        LaunchRun.run, order, id=f"launch/{pad.task_queue}", task_queue=pad.task_queue
    )
    handle = await pad.client.create_schedule(
        schedule_id,
        Schedule(
            action=action,
            spec=spec_of(order.calendar),
            policy=policy_of(timedelta(days=3)),
            state=ScheduleState(paused=True),
        ),
    )
    backfills = [
        ScheduleBackfill(
            start_at=slot, end_at=slot + timedelta(seconds=1), overlap=ScheduleOverlapPolicy.BUFFER_ALL
        )
        for slot in slots
    ]
    for times in (1, 2):
        await handle.backfill(*backfills)
        fired = await fired_once(handle, times * len(slots), deadline_seconds=DEADLINE_SECONDS)
    async with asyncio.timeout(DEADLINE_SECONDS):
        reports = [await reported(pad.client, one) for one in fired]
    await handle.delete()
    return reports


async def test_a_nominal_time_that_is_fired_twice_gives_one_run(pad: LaunchPad) -> None:
    """Backfills bypass Temporal's own duplicate check: the second launcher finds the first one's run."""
    pad.write("2031-04", ROW)
    slots = [CALENDAR.firing_of(Period.month(2031, month)).at for month in (3, 4)]
    reports = await launches_of(pad, pad.order(), *slots)
    assert sorted((report.period, report.outcome) for report in reports) == [
        ("2031-03", LaunchOutcome.DUPLICATE), ("2031-03", LaunchOutcome.STARTED),
        ("2031-04", LaunchOutcome.DUPLICATE), ("2031-04", LaunchOutcome.STARTED),
    ]  # fmt: skip
    for month in ("2031-03", "2031-04"):
        assert {report.run_id for report in reports if report.period == month} == {
            f"billing-run/{pad.account}/{month}"
        }
        await pad.client.get_workflow_handle(f"billing-run/{pad.account}/{month}").terminate()


@pytest.mark.parametrize(
    ("label", "local"), [("2030-03", "2030-03-31T03:30+02:00"), ("2030-10", "2030-10-27T02:30+02:00")]
)
async def test_a_firing_in_a_changing_hour_names_its_month(pad: LaunchPad, label: str, local: str) -> None:
    """02:30 on the day of a change is skipped in March and doubled in October: one run of the month."""
    at = datetime.fromisoformat(local)
    calendar = BillingCalendar(
        zone="Europe/Berlin", every=PeriodKind.MONTH, since="2030-01", anchor=Anchor(month_day=at.day),
        at_seconds=2 * 3_600 + 30 * 60,
    )  # fmt: skip
    billed = str(Period.parse(label).previous())
    pad.write(billed, ROW)
    day = datetime(at.year, at.month, at.day, tzinfo=UTC)
    reports = await launches_of(pad, pad.order(calendar=calendar), at.astimezone(UTC))
    assert {(report.period, report.run_id) for report in reports} == {
        (billed, f"billing-run/{pad.account}/{billed}")
    }
    assert calendar.fired_at(day + timedelta(hours=12)).at == at
    await pad.client.get_workflow_handle(f"billing-run/{pad.account}/{billed}").terminate()
