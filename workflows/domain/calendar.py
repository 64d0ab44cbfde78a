"""When periods of an account are to be billed: one firing a period, worked out from the period alone.

A firing belongs to its period and not to the firing before, so nothing drifts, and what was missed can be
told by asking for each period whether it was billed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from workflows.domain.anchors import FIRST, Anchor, instant_of
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput, invariant
from workflows.domain.periods import Period, PeriodKind

DAYS_AFTER_MAX = 27  # the firing of a month comes before the next month's, whatever the months
# A server whose time zone rules are older than ours fires an hour early or late; both still mean this firing.
EARLY_MAX = timedelta(hours=2)

_AT = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?", re.ASCII)


class Bills(StrEnum):
    """Which period a firing bills: the one that has just ended, or the one that begins."""

    PREVIOUS = "previous"
    CURRENT = "current"


class WallClock(StrEnum):
    """What clocks show at the local time of a firing."""

    PLAIN = "plain"
    SKIPPED = "skipped"  # they jump over it: the firing is as much later as they jump
    DOUBLED = "doubled"  # they show it twice: the firing is the first of the two


@dataclass(frozen=True, slots=True)
class Firing:
    """One firing: an aware UTC instant, and the period that it bills."""

    at: datetime
    period: Period
    local_date: date
    wall_clock: WallClock


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingCalendar:
    """The calendar of one account: which periods there are, and when each is to be billed.

    A firing is `days_after` days (0 to 27) after the local date on which its period ends (`previous`) or
    begins (`current`), at `at_seconds` after midnight by the local clock. `since` is the first period that is
    billed, `until` the last one; both are labels. `zone` is an IANA name.
    """

    zone: str
    every: PeriodKind
    since: str
    until: str | None = None
    anchor: Anchor = FIRST
    bills: Bills = Bills.PREVIOUS
    days_after: int = 0
    at_seconds: int = 6 * 3_600

    def __post_init__(self) -> None:
        invariant(self.every is not PeriodKind.CUSTOM, "a label has no calendar")
        invariant(0 <= self.days_after <= DAYS_AFTER_MAX, f"{self.days_after} days after")
        invariant(0 <= self.at_seconds < 86_400, f"{self.at_seconds} seconds after midnight")

    @property
    def first(self) -> Period:
        """The first period that is billed."""
        return Period.parse(self.since)

    @property
    def at(self) -> time:
        """The local time of day."""
        minutes, second = divmod(self.at_seconds, 60)
        return time(minutes // 60, minutes % 60, second)

    def covers(self, period: Period) -> bool:
        """Return whether this calendar bills the period at all."""
        if period.kind is not self.every or period < self.first:
            return False
        return self.until is None or not Period.parse(self.until) < period

    def bounds_of(self, period: Period) -> tuple[datetime, datetime]:
        """Return start (included) and end (excluded) of a period of this calendar's kind."""
        return period.bounds(ZoneInfo(self.zone), self.anchor)

    def firing_of(self, period: Period) -> Firing:
        """Return when a period of this calendar's kind is to be billed, covered or not."""
        zone = ZoneInfo(self.zone)
        bound = period if self.bills is Bills.CURRENT else period.next()
        day = bound.begins_on(self.anchor) + timedelta(days=self.days_after)
        return Firing(instant_of(day, self.at, zone), period, day, _wall_clock(day, self.at, zone))

    def firings_after(self, instant: datetime) -> Iterator[Firing]:
        """Yield the firings of covered periods after an aware instant, soonest first, without an end."""
        period = max(self.first, self._newest(instant))
        while self.covers(period):
            firing = self.firing_of(period)
            if firing.at > instant and not self._is_empty(period):
                yield firing
            period = period.next()

    def firings_until(self, instant: datetime) -> Iterator[Firing]:
        """Yield the firings of covered periods at or before an aware instant, oldest first."""
        for period in Period.range(self.first, max(self.first, self._newest(instant))):
            firing = self.firing_of(period)
            if firing.at <= instant and self.covers(period) and not self._is_empty(period):
                yield firing

    def fired_at(self, nominal: datetime) -> Firing:
        """Return the firing that a schedule means whose nominal time is `nominal`, covered or not.

        It is the newest one due by then. A person who triggers a schedule by hand so repeats what was due
        last, and never bills a period before its time.
        """
        return self.firing_of(self._newest(nominal + EARLY_MAX))

    def _newest(self, instant: datetime) -> Period:
        """Return the period whose firing is the newest at or before `instant`."""
        period = Period.containing(self.every, instant, ZoneInfo(self.zone), self.anchor)
        while self.firing_of(period).at > instant or self._is_empty(period):
            period = period.previous()
        return period

    def _is_empty(self, period: Period) -> bool:
        # A day that a whole zone skipped: it has no hour in which anything could be due, and none to fire in.
        start, end = self.bounds_of(period)
        return start == end


def _wall_clock(day: date, at: time, zone: ZoneInfo) -> WallClock:
    first = datetime.combine(day, at, tzinfo=zone)
    before, after = first.utcoffset(), first.replace(fold=1).utcoffset()
    invariant(before is not None and after is not None, "a zone has an offset at any time")
    if before == after or before is None or after is None:
        return WallClock.PLAIN
    return WallClock.DOUBLED if before > after else WallClock.SKIPPED


def parse_at(text: str) -> int:
    """Return the seconds after midnight of a local time such as 06:00 or 06:00:30; raises InvalidInput."""
    match = _AT.fullmatch(text)
    if match is None:
        raise InvalidInput(f"{echo(text)} is no time of day: write 06:00, or 06:00:30")
    return int(match[1]) * 3_600 + int(match[2]) * 60 + int(match[3] or 0)
