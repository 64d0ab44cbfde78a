from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.domain.errors import InvalidInput, InvariantViolation
from workflows.domain.periods import Period

PERIODS = st.builds(Period, st.integers(2001, 2998), st.integers(1, 12))


@given(PERIODS)
def test_a_label_is_read_back(period: Period) -> None:
    """Printing and parsing a period gives the same period, with blanks around it too."""
    assert Period.parse(str(period)) == period
    assert Period.parse(f" {period}\n") == period


@pytest.mark.parametrize(
    "text",
    [
        "", "2031", "2031-13", "2031-00", "2031-3", "2031-03-01", "31-03", "2031/03", "203103", "2031-Q1",
        "\uff12\uff10\uff13\uff11-\uff10\uff13", "٢٠٣١-٠٣", "2031\u201303", "2031-03\x1f", "2031-03\x00",
        "2031-W09", "0203-01", "3000-01", "-2031-03", "2031-03 x", "2031- 3",
    ],
)  # fmt: skip
def test_any_other_spelling_is_refused(text: str) -> None:
    """One month has one label: no second spelling of it passes."""
    with pytest.raises(InvalidInput, match="is not a period"):
        Period.parse(text)


def test_a_hostile_label_is_echoed_short_and_escaped() -> None:
    """The reason stays printable and short."""
    with pytest.raises(InvalidInput) as caught:
        Period.parse("\x1b[2J" + "9" * 1000)
    assert caught.value.reason.isprintable()
    assert len(caught.value.reason) < 150


def test_a_month_that_does_not_exist_is_a_bug_in_code() -> None:
    """Text is refused, but a wrong number in our own code is an invariant."""
    for year, month in ((2031, 0), (2031, 13), (1999, 12), (3000, 1)):
        with pytest.raises(InvariantViolation):
            Period(year, month)


@given(PERIODS)
def test_next_and_previous_are_inverse_and_ordered(period: Period) -> None:
    """Going on and back ends at the same month, and order is calendar order."""
    assert period.next().previous() == period == period.previous().next()
    assert period.previous() < period < period.next()


def test_the_calendar_ends_somewhere() -> None:
    """Before 2000-01 and after 2999-12 there is no period."""
    with pytest.raises(InvalidInput):
        Period(2000, 1).previous()
    with pytest.raises(InvalidInput):
        Period(2999, 12).next()
    assert list(Period.range(Period(2999, 11), Period(2999, 12))) == [Period(2999, 11), Period(2999, 12)]


def test_a_range_holds_both_ends() -> None:
    """A range is inclusive, one month is a range, and a backward one is refused."""
    labels = [str(period) for period in Period.range(Period(2031, 11), Period(2032, 2))]
    assert labels == ["2031-11", "2031-12", "2032-01", "2032-02"]
    assert list(Period.range(Period(2031, 3), Period(2031, 3))) == [Period(2031, 3)]
    with pytest.raises(InvalidInput, match="2031-02 is before 2031-03"):
        list(Period.range(Period(2031, 3), Period(2031, 2)))


def test_bounds_are_local_midnights_as_utc_instants() -> None:
    """March 2031 in Berlin begins in winter time and ends in summer time."""
    start, end = Period(2031, 3).bounds(ZoneInfo("Europe/Berlin"))
    assert start == datetime(2031, 2, 28, 23, tzinfo=UTC)
    assert end == datetime(2031, 3, 31, 22, tzinfo=UTC)
    assert start.tzinfo is UTC
    assert end.tzinfo is UTC


def test_midnight_that_happens_twice_counts_once() -> None:
    """On 2026-11-01 Havana's clocks show 00:00 twice; November begins with the first."""
    zone = ZoneInfo("America/Havana")
    start, _ = Period(2026, 11).bounds(zone)
    assert start == datetime(2026, 11, 1, 4, tzinfo=UTC)
    assert Period(2026, 10).bounds(zone)[1] == start


def test_midnight_that_is_skipped_means_the_instant_of_the_skip() -> None:
    """On 2017-10-01 Asuncion's clocks jumped from 00:00 to 01:00; October begins at the jump."""
    start, _ = Period(2017, 10).bounds(ZoneInfo("America/Asuncion"))
    assert start == datetime(2017, 10, 1, 4, tzinfo=UTC)
    assert (start - timedelta(seconds=1)).astimezone(ZoneInfo("America/Asuncion")).month == 9


@given(PERIODS, st.sampled_from(sorted(available_timezones() - {"localtime"})))
def test_periods_tile_in_every_zone(period: Period, name: str) -> None:
    """Incident I19: from month to month there is no gap and no overlap, and no month is a day too short."""
    zone = ZoneInfo(name)
    start, end = period.bounds(zone)
    assert period.next().bounds(zone)[0] == end
    assert timedelta(days=27, hours=20) < end - start < timedelta(days=31, hours=4)
