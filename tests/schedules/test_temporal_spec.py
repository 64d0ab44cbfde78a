import uuid
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from temporalio.api.workflowservice.v1 import ListScheduleMatchingTimesRequest
from temporalio.client import Client, Schedule, ScheduleActionStartWorkflow, ScheduleState

from deploy.temporal_server import TemporalServer
from worker.schedules.temporal_spec import policy_of, spec_of
from workflows.domain.anchors import Anchor
from workflows.domain.calendar import BillingCalendar, Bills, WallClock, parse_at
from workflows.domain.periods import PeriodKind

ONE_SECOND = timedelta(seconds=1)
TIMES_A_CALL = 1_000  # as many as the server returns at once


@pytest.fixture
async def client(temporal_server: TemporalServer) -> Client:
    """A client of the test's Temporal."""
    return await Client.connect(temporal_server.address)


async def matching_times(
    client: Client, calendar: BillingCalendar, first: datetime, last: datetime
) -> list[datetime]:
    """Ask Temporal when it would fire between two instants, both included."""
    schedule_id = f"probe-{uuid.uuid4().hex}"
    action = ScheduleActionStartWorkflow("Nothing", id=schedule_id, task_queue="nobody")
    handle = await client.create_schedule(
        schedule_id,
        Schedule(
            action=action,
            spec=spec_of(calendar),
            policy=policy_of(timedelta(days=3)),
            state=ScheduleState(paused=True),
        ),
    )
    found: list[datetime] = []
    while len(found) % TIMES_A_CALL == 0:
        request = ListScheduleMatchingTimesRequest(namespace=client.namespace, schedule_id=schedule_id)
        request.start_time.FromDatetime(found[-1] + ONE_SECOND if found else first)
        request.end_time.FromDatetime(last)
        answer = await client.workflow_service.list_schedule_matching_times(request)
        if not answer.start_time:
            break
        found += [time.ToDatetime(tzinfo=UTC) for time in answer.start_time]
    await handle.delete()
    return found


# Where clocks do odd things at odd hours: at midnight, by half an hour, in the other half of the year.
ZONES = (
    "Europe/Berlin", "America/New_York", "America/Havana", "Asia/Beirut", "Australia/Lord_Howe",
    "Africa/Cairo", "Pacific/Auckland",
)  # fmt: skip
SOME_ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
WITHOUT_CHANGES = ("UTC", "Asia/Tokyo", "America/Asuncion")
SOME_TIMES = (parse_at("01:30"), parse_at("02:15"), parse_at("02:30"))
# Before, at, between and after the changes of one zone or another.
TIMES = tuple(
    parse_at(at) for at in ("00:00", "00:30", "01:30", "02:00", "02:15", "02:30", "03:00", "05:30", "23:30")
)
FIRST, LAST = datetime(2026, 3, 1, tzinfo=UTC), datetime(2032, 12, 1, tzinfo=UTC)


async def agrees(client: Client, calendar: BillingCalendar, *spans: tuple[datetime, datetime]) -> None:
    """Assert that Temporal fires once a period, when the calendar says or at most a second later."""
    for first, last in spans or [(FIRST, LAST)]:
        ours = [firing for firing in calendar.firings_until(last) if firing.at >= first]
        theirs = await matching_times(client, calendar, first, last)
        assert [calendar.fired_at(time) for time in theirs] == ours
        late = {time - firing.at for time, firing in zip(theirs, ours, strict=True)}
        assert late <= {timedelta(), ONE_SECOND}


def changes_of(name: str, year: int) -> list[tuple[datetime, datetime]]:
    """Return spans of some days around each clock change of a year."""
    zone, hour = ZoneInfo(name), timedelta(hours=1)
    hours = [datetime(year, 1, 1, tzinfo=UTC) + number * hour for number in range(366 * 24)]
    changes = [
        one for one in hours if one.astimezone(zone).utcoffset() != (one + hour).astimezone(zone).utcoffset()
    ]
    return [(one - timedelta(days=2, minutes=17), one + timedelta(days=2, minutes=17)) for one in changes]


@pytest.mark.parametrize("zone", SOME_ZONES)
async def test_temporal_fires_once_where_clocks_change(client: Client, zone: str) -> None:
    """A daily firing in, before or after an hour that is skipped or doubled comes once, for its own day."""
    spans = changes_of(zone, 2031)
    assert len(spans) == 2
    seen: set[WallClock] = set()
    for at_seconds in SOME_TIMES:
        calendar = BillingCalendar(zone=zone, every=PeriodKind.DAY, since="2026-03-01", at_seconds=at_seconds)
        await agrees(client, calendar, *spans)
        seen |= {firing.wall_clock for firing in calendar.firings_until(LAST)}
    assert {WallClock.SKIPPED, WallClock.PLAIN} <= seen


@pytest.mark.parametrize(("anchor", "days_after"), [(1, 0), (30, 2), (31, 27)])
async def test_temporal_fires_once_a_month_as_the_calendar_says(
    client: Client, anchor: int, days_after: int
) -> None:
    """Month ends, leap years and firings some days later are said so that Temporal means the same."""
    for every, since in ((PeriodKind.MONTH, "2026-01"), (PeriodKind.QUARTER, "2026-Q1")):
        for bills in Bills:
            calendar = BillingCalendar(
                zone="Europe/Berlin", every=every, since=since, anchor=Anchor(month_day=anchor), bills=bills,
                days_after=days_after, at_seconds=parse_at("02:30"),
            )  # fmt: skip
            await agrees(client, calendar)


@pytest.mark.parametrize(("weekday", "days_after"), [(1, 0), (4, 1), (7, 6)])
async def test_temporal_fires_once_a_week_as_the_calendar_says(
    client: Client, weekday: int, days_after: int
) -> None:
    """Weeks begin on any day, and are billed some days later."""
    calendar = BillingCalendar(
        zone="America/New_York", every=PeriodKind.WEEK, since="2026-W02", anchor=Anchor(weekday=weekday),
        days_after=days_after, at_seconds=parse_at("01:30"),
    )  # fmt: skip
    await agrees(client, calendar)


async def test_temporal_fires_from_the_first_period_to_the_last(client: Client) -> None:
    """Nothing fires for a period before `since` or after `until`."""
    calendar = BillingCalendar(zone="UTC", every=PeriodKind.MONTH, since="2031-02", until="2031-04")
    found = await matching_times(
        client, calendar, datetime(2030, 1, 1, tzinfo=UTC), datetime(2033, 1, 1, tzinfo=UTC)
    )
    assert [str(calendar.fired_at(time).period) for time in found] == ["2031-02", "2031-03", "2031-04"]


@pytest.mark.proof
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("zone", [*ZONES, *WITHOUT_CHANGES])
async def test_temporal_fires_every_day_of_seven_years_as_the_calendar_says(
    client: Client, zone: str
) -> None:
    """Every day at every time of day tried, whether clocks change near it or not."""
    for at_seconds in (*TIMES, parse_at("06:00"), parse_at("12:00")):
        calendar = BillingCalendar(zone=zone, every=PeriodKind.DAY, since="2026-03-01", at_seconds=at_seconds)
        await agrees(client, calendar)
