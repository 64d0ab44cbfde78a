from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.domain.anchors import Anchor
from workflows.domain.calendar import BillingCalendar, Bills, WallClock, parse_at
from workflows.domain.errors import InvalidInput, InvariantViolation
from workflows.domain.periods import Period, PeriodKind

SINCE = {
    PeriodKind.MONTH: "2026-01",
    PeriodKind.QUARTER: "2026-Q1",
    PeriodKind.WEEK: "2026-W02",
    PeriodKind.DAY: "2026-01-01",
}
HALF_PAST_TWO = 2 * 3_600 + 30 * 60
CALENDARS = st.builds(
    lambda every, **rest: BillingCalendar(every=every, since=SINCE[every], **rest),
    every=st.sampled_from(list(SINCE)),
    zone=st.sampled_from(sorted(available_timezones() - {"localtime"})),
    anchor=st.builds(Anchor, st.integers(1, 31), st.integers(1, 7)),
    bills=st.sampled_from(Bills),
    days_after=st.integers(0, 27),
    at_seconds=st.integers(0, 86_399),
)
INSTANTS = st.integers(5, 14 * 366).map(lambda days: datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=days))
SOON = st.integers(0, 800).map(lambda days: datetime(2026, 1, 1, 7, tzinfo=UTC) + timedelta(days=days))


@given(CALENDARS, INSTANTS)
def test_a_firing_names_its_period(calendar: BillingCalendar, instant: datetime) -> None:
    """The period derived from a firing's nominal time is the one whose firing it is, in every zone."""
    for firing in islice(calendar.firings_after(instant), 3):
        assert calendar.fired_at(firing.at) == firing
        assert calendar.fired_at(firing.at + timedelta(seconds=1)) == firing
        assert calendar.fired_at(firing.at - timedelta(hours=1)) == firing


@given(CALENDARS, INSTANTS)
def test_every_period_fires_once_and_in_order(calendar: BillingCalendar, instant: datetime) -> None:
    """From one firing to the next is from one period to the next: none is left out, and none comes twice."""
    firings = list(islice(calendar.firings_after(instant), 5))
    assert all(firing.at > instant for firing in firings)
    for before, after in pairwise(firings):
        assert before.at < after.at
        assert after.period == before.period.next()


@given(CALENDARS, INSTANTS)
def test_a_period_is_billed_only_when_it_has_ended_or_begun(
    calendar: BillingCalendar, instant: datetime
) -> None:
    """`previous` fires at the end of a period or later, `current` at its start or later."""
    firing = next(calendar.firings_after(instant))
    start, end = calendar.bounds_of(firing.period)
    bound = end if calendar.bills is Bills.PREVIOUS else start
    assert firing.at >= bound
    assert firing.at < bound + timedelta(days=calendar.days_after + 1, hours=3)


@given(CALENDARS, SOON)
def test_what_was_due_and_what_is_to_come_are_all(calendar: BillingCalendar, instant: datetime) -> None:
    """Firings until an instant and those after it meet: the newest due is followed by the next."""
    due = list(calendar.firings_until(instant))
    coming = next(calendar.firings_after(instant))
    assert all(firing.at <= instant for firing in due)
    assert coming.period == (due[-1].period.next() if due else calendar.first)
    assert [str(firing.period) for firing in due[:1]] in ([], [calendar.since])


def test_a_firing_on_the_first_bills_the_month_that_ended() -> None:
    """At 06:00 on 1 April in New York March is billed, and in Tokyo 02:00 on the 1st is still UTC's March."""
    calendar = BillingCalendar(zone="America/New_York", every=PeriodKind.MONTH, since="2031-01")
    april = calendar.fired_at(datetime(2031, 4, 1, 10, tzinfo=UTC))
    assert (str(april.period), april.at) == ("2031-03", datetime(2031, 4, 1, 10, tzinfo=UTC))
    tokyo = BillingCalendar(zone="Asia/Tokyo", every=PeriodKind.MONTH, since="2026-01", at_seconds=2 * 3_600)
    nominal = datetime(2026, 1, 31, 17, tzinfo=UTC)
    assert str(tokyo.fired_at(nominal).period) == "2026-01"
    current = BillingCalendar(
        zone="Asia/Tokyo", every=PeriodKind.MONTH, since="2026-01", at_seconds=2 * 3_600, bills=Bills.CURRENT
    )
    assert str(current.fired_at(nominal).period) == "2026-02"


def test_a_schedule_that_is_triggered_by_hand_repeats_what_was_due_last() -> None:
    """In the middle of March a trigger means February; a day before the firing, the period before it."""
    calendar = BillingCalendar(zone="Europe/Berlin", every=PeriodKind.MONTH, since="2031-01", days_after=2)
    assert str(calendar.fired_at(datetime(2031, 3, 15, tzinfo=UTC)).period) == "2031-02"
    assert str(calendar.fired_at(datetime(2031, 3, 2, tzinfo=UTC)).period) == "2031-01"


@pytest.mark.parametrize(
    ("zone", "month", "local", "wall_clock"),
    [
        # Months whose firing, on the 31st or the 26th, falls into the hour that changes.
        ("Europe/Berlin", "2030-03", "2030-03-31T03:30+02:00", WallClock.SKIPPED),
        ("Europe/Berlin", "2031-10", "2031-10-26T02:30+02:00", WallClock.DOUBLED),
        ("America/New_York", "2031-03", "2031-03-09T03:30-04:00", WallClock.SKIPPED),
        ("Africa/Cairo", "2031-04", "2031-04-25T02:30+03:00", WallClock.PLAIN),
    ],
)
def test_a_firing_in_a_changing_hour_comes_once(
    zone: str, month: str, local: str, wall_clock: WallClock
) -> None:
    """02:30 that clocks skip is 03:30, and 02:30 that they show twice is the first, of the same period."""
    at = datetime.fromisoformat(local)
    calendar = BillingCalendar(
        zone=zone, every=PeriodKind.MONTH, since="2030-01", anchor=Anchor(month_day=at.day),
        bills=Bills.CURRENT, at_seconds=HALF_PAST_TWO,
    )  # fmt: skip
    day = [
        firing for firing in calendar.firings_until(at + timedelta(days=1)) if firing.local_date == at.date()
    ]
    assert [(str(firing.period), firing.at, firing.wall_clock) for firing in day] == [(month, at, wall_clock)]
    assert str(calendar.fired_at(at).period) == month


def test_a_day_that_a_zone_skipped_is_not_billed() -> None:
    """Samoa's 2011-12-30 has no hour, so no firing: days before and after it have theirs."""
    calendar = BillingCalendar(zone="Pacific/Apia", every=PeriodKind.DAY, since="2011-12-28")
    days = [str(firing.period) for firing in calendar.firings_until(datetime(2012, 1, 1, tzinfo=UTC))]
    assert days == ["2011-12-28", "2011-12-29", "2011-12-31"]


def test_a_calendar_begins_and_ends() -> None:
    """Nothing is covered before `since` or after `until`, nor of another kind."""
    calendar = BillingCalendar(zone="UTC", every=PeriodKind.MONTH, since="2031-02", until="2031-04")
    covered = [
        str(month)
        for month in Period.range(Period.month(2031, 1), Period.month(2031, 6))
        if calendar.covers(month)
    ]
    assert covered == ["2031-02", "2031-03", "2031-04"]
    assert not calendar.covers(Period.quarter(2031, 1))
    assert [
        str(firing.period) for firing in calendar.firings_after(datetime(2030, 1, 1, tzinfo=UTC))
    ] == covered
    assert [str(one.period) for one in calendar.firings_until(datetime(2040, 1, 1, tzinfo=UTC))] == covered
    assert list(calendar.firings_until(datetime(2030, 1, 1, tzinfo=UTC))) == []


def test_calendars_that_can_not_be_are_bugs_in_code() -> None:
    """A file is refused before it becomes a calendar."""
    for wrong in (
        {"every": PeriodKind.CUSTOM, "since": "x-a"},
        {"days_after": 28},
        {"days_after": -1},
        {"at_seconds": 86_400},
    ):
        with pytest.raises(InvariantViolation):
            BillingCalendar(**({"zone": "UTC", "every": PeriodKind.MONTH, "since": "2031-01"} | wrong))


@pytest.mark.parametrize(("text", "seconds"), [("06:00", 21_600), ("00:00", 0), ("23:59:59", 86_399)])
def test_a_time_of_day_is_read(text: str, seconds: int) -> None:
    """Hours and minutes, and seconds where wanted."""
    assert parse_at(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "6:00", "24:00", "06:60", "06:00:60", "06:00Z", "06:00+01:00", "0600", "\u0660\u0666:\u0660\u0660"],
)
def test_another_time_of_day_is_refused(text: str) -> None:
    """One way to write it, and no offset: the zone decides."""
    with pytest.raises(InvalidInput, match="is no time of day"):
        parse_at(text)


def test_a_firing_shows_the_local_day() -> None:
    """The local date of a firing is its zone's."""
    calendar = BillingCalendar(
        zone="Pacific/Kiritimati", every=PeriodKind.DAY, since="2031-01-01", at_seconds=60
    )
    firing = calendar.firing_of(Period.parse("2031-01-31"))
    assert firing.local_date == date(2031, 2, 1)
    assert firing.at.astimezone(ZoneInfo("Pacific/Kiritimati")).date() == date(2031, 2, 1)
