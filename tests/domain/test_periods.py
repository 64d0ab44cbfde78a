import random
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.domain.anchors import FIRST, Anchor
from workflows.domain.errors import InvalidInput, InvariantViolation
from workflows.domain.periods import YEAR_MAX, YEAR_MIN, Period, PeriodKind

MONTHS = st.builds(Period.month, st.integers(2001, 2998), st.integers(1, 12))
DAYS = st.dates(date(2001, 1, 8), date(2998, 12, 24))
PERIODS = st.one_of(
    MONTHS,
    st.builds(Period.quarter, st.integers(2001, 2998), st.integers(1, 4)),
    st.builds(Period.day, DAYS),
    DAYS.map(lambda day: Period.week(*day.isocalendar()[:2])),
)
LABELS = st.from_regex(r"x-[a-z0-9][a-z0-9._-]{0,40}", fullmatch=True)
ZONES = sorted(available_timezones() - {"localtime"})
ONE_SECOND = timedelta(seconds=1)
ANCHORS = st.builds(Anchor, st.integers(1, 31), st.integers(1, 7))


@given(PERIODS)
def test_a_label_is_read_back(period: Period) -> None:
    """Printing and parsing a period of any kind gives the same period, with blanks around it too."""
    assert Period.parse(str(period)) == period
    assert Period.parse(f" {period}\n") == period


@given(LABELS)
def test_a_label_of_ones_own_is_read_back(label: str) -> None:
    """A custom label names itself, and has neither neighbours nor bounds."""
    period = Period.parse(label)
    assert (period.kind, str(period)) == (PeriodKind.CUSTOM, label)
    for ask in (period.next, period.previous, lambda: period.bounds(ZoneInfo("UTC"))):
        with pytest.raises(InvalidInput):
            ask()
    assert list(Period.range(period, period)) == [period]


def test_labels_say_what_they_are() -> None:
    """Each kind has a label of its own form, and weeks are those of ISO 8601."""
    assert str(Period.month(2031, 3)) == "2031-03"
    assert str(Period.quarter(2031, 1)) == "2031-Q1"
    assert str(Period.week(2031, 9)) == "2031-W09"
    assert str(Period.day(date(2031, 3, 1))) == "2031-03-01"
    assert Period.parse("2026-W53").begins_on() == date(2026, 12, 28)
    assert Period.parse("2031-W01").begins_on() == date(2030, 12, 30)


@pytest.mark.parametrize(
    "text",
    [
        "", "2031", "2031-13", "2031-00", "2031-3", "31-03", "2031/03", "203103", "2031-Q5", "2031-q1",
        "2031-Q", "2031-W00", "2031-W54", "2031-W53", "2031-w09", "2031-W9", "2031-02-29", "2031-04-31",
        "2031-03-1", "20310301", "\uff12\uff10\uff13\uff11-\uff10\uff13", "٢٠٣١-٠٣", "2031\u201303",
        "2031-03\x1f", "2031-03\x00", "0203-01", "3000-01", "1999-Q4", "3000-W01", "1999-12-31", "-2031-03",
        "2031-03 x", "2031- 3", "x", "x-", "X-setup", "x-Setup", "x-a b", "x-a/b", "x--a", "x-\u00e4",
        "x-" + "a" * 42,
    ],
)  # fmt: skip
def test_any_other_spelling_is_refused(text: str) -> None:
    """One period has one label: no second spelling of it passes, and what the calendar has not has none."""
    with pytest.raises(InvalidInput, match="is not a period"):
        Period.parse(text)


def test_a_hostile_label_is_echoed_short_and_escaped() -> None:
    """The reason stays printable and short."""
    with pytest.raises(InvalidInput) as caught:
        Period.parse("\x1b[2J" + "9" * 1000)
    assert caught.value.reason.isprintable()
    assert len(caught.value.reason) < 200


def test_a_period_that_does_not_exist_is_a_bug_in_code() -> None:
    """Text is refused, but a wrong number in our own code is an invariant."""
    for year, month in ((2031, 0), (2031, 13), (1999, 12), (3000, 1)):
        with pytest.raises(InvariantViolation):
            Period.month(year, month)
    for make in (
        lambda: Period.quarter(2031, 5),
        lambda: Period.day(date(1999, 12, 31)),
        lambda: Period(PeriodKind.CUSTOM, 0, "x-Not"),
        lambda: Period(PeriodKind.MONTH, Period.month(2031, 3).number, "x-label"),
        lambda: Anchor(month_day=32),
        lambda: Anchor(weekday=0),
        lambda: Period.month(2031, 3) < Period.quarter(2031, 1),
    ):
        with pytest.raises(InvariantViolation):
            make()


@given(PERIODS)
def test_next_and_previous_are_inverse_and_ordered(period: Period) -> None:
    """Going on and back ends at the same period, and order is calendar order."""
    assert period.next().previous() == period == period.previous().next()
    assert period.previous() < period < period.next()


def test_the_calendar_ends_somewhere() -> None:
    """Before the year 2000 and after 2999 there is no period of any kind."""
    for first, last in (
        ("2000-01", "2999-12"),
        ("2000-Q1", "2999-Q4"),
        ("2000-W01", "2999-W52"),
        ("2000-01-01", "2999-12-31"),
    ):
        with pytest.raises(InvalidInput):
            Period.parse(first).previous()
        with pytest.raises(InvalidInput):
            Period.parse(last).next()
        assert str(Period.parse(last).previous().next()) == last
    assert (YEAR_MIN, YEAR_MAX) == (2000, 2999)


def test_a_range_holds_both_ends() -> None:
    """A range is inclusive, one period is a range, and a backward or a mixed one is refused."""
    labels = [str(period) for period in Period.range(Period.month(2031, 11), Period.month(2032, 2))]
    assert labels == ["2031-11", "2031-12", "2032-01", "2032-02"]
    assert list(Period.range(Period.month(2031, 3), Period.month(2031, 3))) == [Period.month(2031, 3)]
    weeks = [str(week) for week in Period.range(Period.week(2026, 52), Period.week(2027, 2))]
    assert weeks == ["2026-W52", "2026-W53", "2027-W01", "2027-W02"]
    with pytest.raises(InvalidInput, match="2031-02 is before 2031-03"):
        list(Period.range(Period.month(2031, 3), Period.month(2031, 2)))
    with pytest.raises(InvalidInput, match="2031-03 is a month and 2031-Q2 a quarter"):
        list(Period.range(Period.month(2031, 3), Period.quarter(2031, 2)))
    with pytest.raises(InvalidInput, match="nothing lies between"):
        list(Period.range(Period.parse("x-a"), Period.parse("x-b")))


def test_bounds_are_local_midnights_as_utc_instants() -> None:
    """March 2031 in Berlin begins in winter time and ends in summer time."""
    start, end = Period.month(2031, 3).bounds(ZoneInfo("Europe/Berlin"))
    assert start == datetime(2031, 2, 28, 23, tzinfo=UTC)
    assert end == datetime(2031, 3, 31, 22, tzinfo=UTC)
    assert start.tzinfo is UTC
    assert end.tzinfo is UTC


def test_midnight_that_happens_twice_counts_once() -> None:
    """On 2026-11-01 Havana's clocks show 00:00 twice; November begins with the first."""
    zone = ZoneInfo("America/Havana")
    start, _ = Period.month(2026, 11).bounds(zone)
    assert start == datetime(2026, 11, 1, 4, tzinfo=UTC)
    assert Period.month(2026, 10).bounds(zone)[1] == start


def test_midnight_that_is_skipped_means_the_instant_of_the_skip() -> None:
    """On 2017-10-01 Asuncion's clocks jumped from 00:00 to 01:00; October begins at the jump."""
    start, _ = Period.month(2017, 10).bounds(ZoneInfo("America/Asuncion"))
    assert start == datetime(2017, 10, 1, 4, tzinfo=UTC)
    assert (start - timedelta(seconds=1)).astimezone(ZoneInfo("America/Asuncion")).month == 9


def test_a_day_that_a_zone_skipped_is_empty() -> None:
    """Samoa had no 2011-12-30: that day begins where it ends, and its neighbours touch."""
    zone = ZoneInfo("Pacific/Apia")
    start, end = Period.parse("2011-12-30").bounds(zone)
    assert start == end
    assert Period.containing(PeriodKind.DAY, start, zone, FIRST) == Period.parse("2011-12-31")


@pytest.mark.parametrize(
    ("anchor", "start", "days"),
    [
        (29, 2031, "01-29 02-28 03-29 04-29 05-29"), (29, 2032, "01-29 02-29 03-29 04-29 05-29"),
        (30, 2031, "01-30 02-28 03-30 04-30 05-30"), (30, 2032, "01-30 02-29 03-30 04-30 05-30"),
        (31, 2031, "01-31 02-28 03-31 04-30 05-31"), (31, 2032, "01-31 02-29 03-31 04-30 05-31"),
    ],
)  # fmt: skip
def test_i19_month_end_anchors_do_not_drift(anchor: int, start: int, days: str) -> None:
    """Incident I19: the n-th bound depends on anchor and n alone, over 26 months, leap year or not."""
    zone, period = ZoneInfo("UTC"), Period.month(start, 1)
    first, before = days.split(), None
    for number in range(26):
        month = period.shifted(number)
        begins, ends = month.bounds(zone, Anchor(month_day=anchor))
        assert before in {None, begins}
        assert (begins.year * 12 + begins.month) - (start * 12 + 1) == number
        if number < len(first):
            assert f"{begins:%m-%d}" == first[number]
        before = ends
    assert Anchor.of_month("last") == Anchor(month_day=31)


def test_i19_yearly_from_29_february_does_not_drift() -> None:
    """Incident I19: a year that begins on 29 February begins there again in every leap year."""
    anchor = Anchor(month_day=29)
    years = [f"{anchor.in_month(year, 2):%m-%d}" for year in range(2032, 2041)]
    assert years == ["02-29", "02-28", "02-28", "02-28", "02-29", "02-28", "02-28", "02-28", "02-29"]


@given(PERIODS, st.sampled_from(ZONES), ANCHORS)
def test_periods_of_every_kind_tile_in_every_zone(period: Period, name: str, anchor: Anchor) -> None:
    """Incident I19: from one period to the next there is no gap and no overlap, and each holds its start."""
    zone = ZoneInfo(name)
    start, end = period.bounds(zone, anchor)
    assert start < end
    assert period.next().bounds(zone, anchor)[0] == end
    for instant in (start, end - timedelta(seconds=1)):
        assert Period.containing(period.kind, instant, zone, anchor) == period


def tile(zone: ZoneInfo, first: Period, last: Period, anchor: Anchor) -> None:
    """Assert that periods tile, and that each begins with its first local day, whatever clocks do."""
    before = first.previous().start(zone, anchor)
    for period in Period.range(first, last):
        start, day = period.start(zone, anchor), period.begins_on(anchor)
        assert before < start or zone.key in {"Pacific/Apia", "Pacific/Fakaofo"}
        assert start.astimezone(zone).date() >= day
        assert (start - ONE_SECOND).astimezone(zone).date() < day
        if period.number % 10 == 0:
            assert period.previous().bounds(zone, anchor) == (before, start)
        before = start


def test_months_tile_in_all_zones_for_30_years() -> None:
    """All zones, every month from 2010 to 2040: no gap, no overlap, and each begins on its own first day."""
    anchors = random.Random(19)
    for name in ZONES:
        anchor = Anchor(month_day=anchors.choice((1, 15, 29, 30, 31)))
        first = Period.month(2010, anchors.randint(1, 3))
        tile(ZoneInfo(name), first, Period.month(2040, 1), anchor)


@pytest.mark.proof
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    ("first", "last", "anchors"),
    [
        ("2010-01", "2040-01", [Anchor(month_day=day) for day in (1, 28, 29, 30, 31)]),
        ("2010-Q1", "2040-Q1", [Anchor(month_day=day) for day in (1, 28, 29, 30, 31)]),
        ("2010-W01", "2040-W01", [Anchor(weekday=day) for day in (1, 7)]),
        ("2010-01-01", "2040-01-01", [FIRST]),
    ],
)
def test_all_kinds_tile_in_all_zones_for_30_years(first: str, last: str, anchors: list[Anchor]) -> None:
    """All zones, every period of every kind from 2010 to 2040, by several anchors: no gap and no overlap."""
    for name in ZONES:
        for anchor in anchors:
            tile(ZoneInfo(name), Period.parse(first), Period.parse(last), anchor)
