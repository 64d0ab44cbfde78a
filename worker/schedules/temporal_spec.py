"""A billing calendar in Temporal's words.

Temporal matches calendars by local time, and within hours of a clock change it is not to be relied on: a time
that is skipped does not fire at all; one that is doubled fires twice in some zones, and in others the second
time only; and one shortly before fires again an hour later, at another local time (server 1.32). So those
firings are said as instants, worked out here, and the hours around them are taken out of the calendar.

An instant is the second turn of an interval of fifty years (asked for the first turn, the server names the
second). It is a second late: what is taken out is a second of each minute, and it must not be that one.
"""

from calendar import isleap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from temporalio.client import (
    ScheduleCalendarSpec,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
)

from workflows.domain.calendar import BillingCalendar, Firing
from workflows.domain.periods import Period, PeriodKind

YEAR_MIN, YEAR_MAX = 2000, 2100  # what Temporal's calendars can say
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ONCE_EVERY = timedelta(days=50 * 366)
# Nobody knows zone rules for longer, and a third turn is a firing that finds its period billed.
CLOCK_CHANGES_FROM = EPOCH + ONCE_EVERY + timedelta(days=7)
CLOCK_CHANGES_UNTIL = datetime(2050, 1, 1, tzinfo=UTC)
ONE_SECOND = timedelta(seconds=1)
HOURS_AROUND = timedelta(hours=3) - ONE_SECOND  # the usual 06:00 is three hours after the usual change
_UTC = ZoneInfo("UTC")

# A common and a leap year: what holds in both needs no year said, since a month's firing depends on no other
# year than its own.
COMMON_YEAR, LEAP_YEAR = 2027, 2028

# BUFFER_ALL keeps every firing, one after the other: SKIP would drop a month whose launcher still waits for
# its source. Launchers end when their run has begun, so a long run holds back nothing. A failed launcher does
# not pause its schedule: that would leave next month unbilled as well, while the sweep finds what was missed.
OVERLAP = ScheduleOverlapPolicy.BUFFER_ALL
OVERLAP_WHY = (
    "buffer all: every firing is launched, one after the other; none is dropped, and a run holds up none"
)


def spec_of(calendar: BillingCalendar) -> ScheduleSpec:
    """Return when Temporal is to fire: exactly once at or right after each firing of the calendar."""
    first = calendar.firing_of(calendar.first)
    last = None if calendar.until is None else calendar.firing_of(Period.parse(calendar.until))
    changed = list(_near_clock_changes(calendar))
    return ScheduleSpec(
        calendars=list(_calendars(calendar)),
        intervals=[_once(firing) for firing in changed],
        skip=[hours for firing in changed for hours in _hours_around(firing, calendar)],
        start_at=first.at - ONE_SECOND,
        end_at=None if last is None else last.at + 2 * ONE_SECOND,
        time_zone_name=calendar.zone,
    )


def policy_of(catch_up_window: timedelta) -> SchedulePolicy:
    """Return what Temporal does with firings that overlap, are late, or fail (the reasons stand above)."""
    return SchedulePolicy(overlap=OVERLAP, catchup_window=catch_up_window, pause_on_failure=False)


def _calendars(calendar: BillingCalendar) -> Iterator[ScheduleCalendarSpec]:
    if calendar.every is PeriodKind.DAY:
        yield _calendar(calendar)
    elif calendar.every is PeriodKind.WEEK:
        weekday = calendar.firing_of(calendar.first).local_date.isoweekday() % 7
        yield _calendar(calendar, day_of_week=[_only(weekday)])
    else:
        common, leap = _dates_of(calendar, COMMON_YEAR), _dates_of(calendar, LEAP_YEAR)
        for dates, years in (
            (common & leap, ()),
            (common - leap, _years(leap=False)),
            (leap - common, _years(leap=True)),
        ):
            yield from _by_day(calendar, dates, years)


def _by_day(
    calendar: BillingCalendar, dates: Iterable[tuple[int, int]], years: Sequence[ScheduleRange]
) -> Iterator[ScheduleCalendarSpec]:
    months: defaultdict[int, list[int]] = defaultdict(list)
    for month, day in sorted(dates):
        months[day].append(month)
    for day in sorted(months):
        yield _calendar(calendar, day_of_month=[_only(day)], month=_ranges(months[day]), year=years)


def _dates_of(calendar: BillingCalendar, year: int) -> set[tuple[int, int]]:
    """Return month and day of every firing in a year."""
    period = Period.containing(calendar.every, datetime(year - 1, 9, 1, tzinfo=UTC), _UTC, calendar.anchor)
    found: set[tuple[int, int]] = set()
    while (day := calendar.firing_of(period).local_date).year <= year:
        if day.year == year:
            found.add((day.month, day.day))
        period = period.next()
    return found


def _calendar(
    calendar: BillingCalendar,
    *,
    day_of_month: Sequence[ScheduleRange] = (ScheduleRange(1, 31, 1),),
    month: Sequence[ScheduleRange] = (ScheduleRange(1, 12, 1),),
    year: Sequence[ScheduleRange] = (),
    day_of_week: Sequence[ScheduleRange] = (ScheduleRange(0, 6, 1),),
) -> ScheduleCalendarSpec:
    at = calendar.at
    return ScheduleCalendarSpec(
        second=(_only(at.second),),
        minute=(_only(at.minute),),
        hour=(_only(at.hour),),
        day_of_month=tuple(day_of_month),
        month=tuple(month),
        year=tuple(year),
        day_of_week=tuple(day_of_week),
    )


def _near_clock_changes(calendar: BillingCalendar) -> Iterator[Firing]:
    """Yield the firings that Temporal may get wrong, as far as zone rules can be foreseen."""
    zone, seen = ZoneInfo(calendar.zone), set[Period]()
    for day in _days_of_change(zone):
        newest = calendar.fired_at(day + timedelta(days=2)).period
        for firing in (calendar.firing_of(newest.shifted(count)) for count in range(-4, 1)):
            before, after = firing.at - HOURS_AROUND, firing.at + HOURS_AROUND
            changes = before.astimezone(zone).utcoffset() != after.astimezone(zone).utcoffset()
            if changes and calendar.covers(firing.period) and firing.period not in seen:
                seen.add(firing.period)
                yield firing


def _days_of_change(zone: ZoneInfo) -> Iterator[datetime]:
    """Yield the instants, a day apart, after which clocks change within a day."""
    day, offset = CLOCK_CHANGES_FROM, CLOCK_CHANGES_FROM.astimezone(zone).utcoffset()
    while day < CLOCK_CHANGES_UNTIL:
        next_day = day + timedelta(days=1)
        next_offset = next_day.astimezone(zone).utcoffset()
        if next_offset != offset:
            yield day
        day, offset = next_day, next_offset


def _once(firing: Firing) -> ScheduleIntervalSpec:
    return ScheduleIntervalSpec(every=ONCE_EVERY, offset=firing.at + ONE_SECOND - EPOCH - ONCE_EVERY)


def _hours_around(firing: Firing, calendar: BillingCalendar) -> Iterator[ScheduleCalendarSpec]:
    """Yield the local hours, by date, in which a firing could be seen a second time."""
    zone, hours = ZoneInfo(calendar.zone), defaultdict[date, set[int]](set)
    at = firing.at - HOURS_AROUND
    while at <= firing.at + HOURS_AROUND:
        local = at.astimezone(zone)
        hours[local.date()].add(local.hour)
        at += timedelta(minutes=15)
    for day in sorted(hours):
        yield ScheduleCalendarSpec(
            second=(_only(calendar.at.second),),
            minute=(ScheduleRange(0, 59, 1),),
            hour=tuple(_ranges(sorted(hours[day]))),
            day_of_month=(_only(day.day),),
            month=(_only(day.month),),
            year=(_only(day.year),),
            day_of_week=(ScheduleRange(0, 6, 1),),
        )


def _only(value: int) -> ScheduleRange:
    return ScheduleRange(value, value, 1)


def _ranges(values: Sequence[int]) -> list[ScheduleRange]:
    """Return ascending numbers as ranges; neighbours are one."""
    ranges: list[ScheduleRange] = []
    for value in values:
        if ranges and ranges[-1].end == value - 1:
            ranges[-1] = ScheduleRange(ranges[-1].start, value, 1)
        else:
            ranges.append(_only(value))
    return ranges


def _years(*, leap: bool) -> list[ScheduleRange]:
    return _ranges([year for year in range(YEAR_MIN, YEAR_MAX + 1) if isleap(year) is leap])
