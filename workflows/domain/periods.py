"""A period is what is being billed: a month, quarter, week or day in the account's time zone, or a label.

The label is part of every charge's identity, so two spellings of one period must never both pass: what is
accepted is parsed and printed again, and anything else is refused. No label of one kind is one of another.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from zoneinfo import ZoneInfo

from workflows.domain.anchors import FIRST, MIDNIGHT, Anchor, instant_of
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput, invariant

# Years outside are typing errors (0203-01), and datetime's own range ends would break `bounds`.
YEAR_MIN = 2000
YEAR_MAX = 2999

_LABELS = {
    "month": re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])", re.ASCII),
    "quarter": re.compile(r"([0-9]{4})-Q([1-4])", re.ASCII),
    "week": re.compile(r"([0-9]{4})-W(0[1-9]|[1-4][0-9]|5[0-3])", re.ASCII),
    "day": re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII),
}
_CUSTOM = re.compile(r"x-[a-z0-9][a-z0-9._-]{0,40}", re.ASCII)
EXAMPLES = (
    "a month 2031-03 (YYYY-MM), quarter 2031-Q1, week 2031-W09, day 2031-03-01, or a label of your own: x-..."
)


class PeriodKind(StrEnum):
    """How long a period is. Weeks are those of ISO 8601: week 1 has the year's first Thursday."""

    MONTH = "month"
    QUARTER = "quarter"
    WEEK = "week"
    DAY = "day"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class Period:
    """One period of a kind, in the years 2000 to 2999.

    `number` counts periods of the kind from the year 0 on (weeks and days from the year 1), so the next one's
    is one more. A custom period has a label instead, and neither neighbours nor bounds.
    """

    kind: PeriodKind
    number: int
    label: str = ""

    def __post_init__(self) -> None:
        is_custom = self.kind is PeriodKind.CUSTOM
        invariant(is_custom == bool(self.label), "a custom period has a label, and no other has one")
        invariant(not is_custom or _CUSTOM.fullmatch(self.label), "a label of other characters")
        first, last = _RANGES[self.kind]
        invariant(first <= self.number <= last, f"{self.kind} {self.number} is outside the years")

    @classmethod
    def month(cls, year: int, month: int) -> "Period":
        """Return a month, 1 to 12."""
        invariant(1 <= month <= 12, f"month out of range: {month}")
        return cls(PeriodKind.MONTH, _month_number(year, month))

    @classmethod
    def quarter(cls, year: int, quarter: int) -> "Period":
        """Return a quarter, 1 to 4."""
        invariant(1 <= quarter <= 4, f"quarter out of range: {quarter}")
        return cls(PeriodKind.QUARTER, year * 4 + quarter - 1)

    @classmethod
    def week(cls, year: int, week: int) -> "Period":
        """Return a week of an ISO year, 1 to 52 or 53; raises InvalidInput where it has no such week."""
        try:
            return cls(PeriodKind.WEEK, _week_number(date.fromisocalendar(year, week, 1)))
        except ValueError:
            raise InvalidInput(f"{year} has no week {week}") from None

    @classmethod
    def day(cls, day: date) -> "Period":
        """Return a day."""
        return cls(PeriodKind.DAY, day.toordinal())

    @classmethod
    def parse(cls, text: str) -> "Period":
        """Return the period that a label names, after stripping and NFC.

        Raises:
            InvalidInput: No label of any kind in ASCII (NFC keeps full-width digits, so they stay refused),
                no such week or day, or a year outside 2000 to 2999.
        """
        label = unicodedata.normalize("NFC", text.strip(" \t\r\n"))
        if _CUSTOM.fullmatch(label):
            return cls(PeriodKind.CUSTOM, 0, label)
        for name, pattern in _LABELS.items():
            if match := pattern.fullmatch(label):
                return _parsed(PeriodKind(name), [int(part) for part in match.groups()], text)
        raise InvalidInput(f"{echo(text)} is not a period: there are {EXAMPLES}")

    @classmethod
    def containing(cls, kind: PeriodKind, instant: datetime, zone: ZoneInfo, anchor: Anchor) -> "Period":
        """Return the period of a kind between whose bounds an aware instant lies; not for custom ones."""
        local = instant.astimezone(zone).date()
        match kind:
            case PeriodKind.MONTH:
                period = cls.month(local.year, local.month)
            case PeriodKind.QUARTER:
                period = cls.quarter(local.year, (local.month + 2) // 3)
            case PeriodKind.WEEK:
                period = cls(kind, _week_number(local))
            case _:
                invariant(kind is PeriodKind.DAY, "a label has no calendar")
                period = cls.day(local)
        while period.start(zone, anchor) > instant:
            period = period.previous()
        while period.bounds(zone, anchor)[1] <= instant:
            period = period.next()
        return period

    def __str__(self) -> str:
        match self.kind:
            case PeriodKind.MONTH:
                return f"{self.number // 12:04d}-{self.number % 12 + 1:02d}"
            case PeriodKind.QUARTER:
                return f"{self.number // 4:04d}-Q{self.number % 4 + 1}"
            case PeriodKind.WEEK:
                year, week, _ = date.fromordinal(self.number * 7 + 1).isocalendar()
                return f"{year:04d}-W{week:02d}"
            case PeriodKind.DAY:
                return date.fromordinal(self.number).isoformat()
            case _:
                return self.label

    def __lt__(self, other: "Period") -> bool:
        invariant(self.kind is other.kind, f"a {self.kind} is neither before nor after a {other.kind}")
        return (self.number, self.label) < (other.number, other.label)

    def next(self) -> "Period":
        """Return the period after; InvalidInput after the last of 2999, and for a label."""
        return self.shifted(1)

    def previous(self) -> "Period":
        """Return the period before; InvalidInput before the first of 2000, and for a label."""
        return self.shifted(-1)

    def shifted(self, count: int) -> "Period":
        """Return the period `count` further on, or back below 0. Raises InvalidInput as `next`."""
        first, last = _RANGES[self.kind]
        if self.kind is PeriodKind.CUSTOM or not first <= self.number + count <= last:
            raise InvalidInput(f"no period beside {self}: years go from {YEAR_MIN} to {YEAR_MAX}")
        return Period(self.kind, self.number + count)

    @staticmethod
    def range(first: "Period", last: "Period") -> Iterator["Period"]:
        """Yield every period from `first` to `last`, both included.

        Raises:
            InvalidInput: `last` is before `first`, is of another kind, or one of two labels.
        """
        if first.kind is not last.kind:
            raise InvalidInput(f"{first} is a {first.kind} and {last} a {last.kind}: say two of one kind")
        if first.kind is PeriodKind.CUSTOM and first != last:
            raise InvalidInput(f"nothing lies between the labels {first} and {last}")
        if last < first:
            raise InvalidInput(f"{last} is before {first}")
        for number in range(first.number, last.number + 1):
            yield Period(first.kind, number, first.label)

    def bounds(self, zone: ZoneInfo, anchor: Anchor = FIRST) -> tuple[datetime, datetime]:
        """Return start (included) and end (excluded) as aware UTC instants.

        The end is the next period's start by the same rule, so periods tile: no gap and no overlap. A bound
        is local midnight (`anchors.instant_of` says which, where clocks change).

        Raises:
            InvalidInput: A label has no bounds.
        """
        return self.start(zone, anchor), _start(self.kind, self.number + 1, zone, anchor)

    def start(self, zone: ZoneInfo, anchor: Anchor = FIRST) -> datetime:
        """Return the first of the bounds. Raises InvalidInput as that."""
        if self.kind is PeriodKind.CUSTOM:
            raise InvalidInput(f"{self} is a label, and has no bounds in any calendar")
        return _start(self.kind, self.number, zone, anchor)

    def begins_on(self, anchor: Anchor = FIRST) -> date:
        """Return the local date of the start; not for custom periods."""
        return first_day(self.kind, self.number, anchor)


def first_day(kind: PeriodKind, number: int, anchor: Anchor) -> date:
    """Return on which local date the n-th period of a kind begins: a function of anchor and n alone."""
    match kind:
        case PeriodKind.MONTH:
            return anchor.in_month(number // 12, number % 12 + 1)
        case PeriodKind.QUARTER:
            return anchor.in_month(number // 4, number % 4 * 3 + 1)
        case PeriodKind.WEEK:
            return anchor.in_week(number)
        case _:
            invariant(kind is PeriodKind.DAY, "a label has no calendar")
            return date.fromordinal(number)


def _start(kind: PeriodKind, number: int, zone: ZoneInfo, anchor: Anchor) -> datetime:
    return instant_of(first_day(kind, number, anchor), MIDNIGHT, zone)


def _parsed(kind: PeriodKind, numbers: list[int], text: str) -> Period:
    if not YEAR_MIN <= numbers[0] <= YEAR_MAX:
        raise InvalidInput(f"{echo(text)} is not a period: years go from {YEAR_MIN} to {YEAR_MAX}")
    try:
        match kind:
            case PeriodKind.MONTH:
                return Period.month(*numbers)
            case PeriodKind.QUARTER:
                return Period.quarter(*numbers)
            case PeriodKind.WEEK:
                return Period.week(*numbers)
            case _:
                return Period.day(date(*numbers))
    except (ValueError, InvalidInput):
        raise InvalidInput(f"{echo(text)} is not a period: the calendar has no such {kind}") from None


def _month_number(year: int, month: int) -> int:
    return year * 12 + month - 1


def _week_number(day: date) -> int:
    return (day.toordinal() - 1) // 7


_RANGES = {
    PeriodKind.MONTH: (_month_number(YEAR_MIN, 1), _month_number(YEAR_MAX, 12)),
    PeriodKind.QUARTER: (YEAR_MIN * 4, YEAR_MAX * 4 + 3),
    PeriodKind.WEEK: (
        _week_number(date.fromisocalendar(YEAR_MIN, 1, 1)),
        _week_number(date.fromisocalendar(YEAR_MAX + 1, 1, 1)) - 1,
    ),
    PeriodKind.DAY: (date(YEAR_MIN, 1, 1).toordinal(), date(YEAR_MAX, 12, 31).toordinal()),
    PeriodKind.CUSTOM: (0, 0),
}
