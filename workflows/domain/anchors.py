"""On which day a period begins: the n-th bound is a function of the anchor and of n, and of nothing else.

Public incident I19: whoever adds a month to the bound before clamps the 31st to the 28th in February, and
stays there. Here each bound is worked out from its own month, so January 31st is followed by February 28th or
29th and then by March 31st.
"""

from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from zoneinfo import ZoneInfo

from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput, invariant

LAST_DAY = 31  # of any month: no month is longer, and shorter ones end earlier
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

MIDNIGHT = time()


@dataclass(frozen=True, slots=True)
class Anchor:
    """The day of the month (1 to 31) and of the week (1, Monday, to 7) on which periods begin.

    Months and quarters look at the first, weeks at the second, days at neither. A month that has no such day
    begins on its last; so 31 is the last day of every month.
    """

    month_day: int = 1
    weekday: int = 1

    def __post_init__(self) -> None:
        invariant(1 <= self.month_day <= LAST_DAY, f"no month has a day {self.month_day}")
        invariant(1 <= self.weekday <= len(WEEKDAYS), f"no week has a day {self.weekday}")

    @classmethod
    def of_month(cls, text: str) -> "Anchor":
        """Return the anchor that `1` to `31` or `last` names; raises InvalidInput."""
        if text == "last":
            return cls(month_day=LAST_DAY)
        if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= LAST_DAY):
            raise InvalidInput(f"{echo(text)} is no day of a month: 1 to 31, or last")
        return cls(month_day=int(text))

    @classmethod
    def of_week(cls, text: str) -> "Anchor":
        """Return the anchor that `mon` to `sun` names; raises InvalidInput."""
        if text not in WEEKDAYS:
            raise InvalidInput(f"{echo(text)} is no day of a week: {', '.join(WEEKDAYS)}")
        return cls(weekday=WEEKDAYS.index(text) + 1)

    def in_month(self, year: int, month: int) -> date:
        """Return the anchor's day in one month; `month` is 1 to 12."""
        return date(year, month, min(self.month_day, monthrange(year, month)[1]))

    def in_week(self, week: int) -> date:
        """Return the anchor's day in one week; week 0 is the one of 1 January of the year 1, a Monday."""
        return date.fromordinal(week * 7 + self.weekday)


FIRST = Anchor()


def instant_of(day: date, at: time, zone: ZoneInfo) -> datetime:
    """Return the UTC instant of a local time, one for every local time there can be.

    A time that clocks skip is taken by the offset that was valid before the skip, so 02:30 becomes 03:30, and
    midnight the instant of the skip; of a time that happens twice the first is meant (PEP 495, fold 0).
    """
    return datetime.combine(day, at, tzinfo=zone).astimezone(UTC)
