"""A period is a calendar month in the account's time zone, named by a label such as 2031-03.

The label is part of every charge's identity, so two spellings of one month must never both pass: what is
accepted is parsed and printed again, and anything else is refused.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput, invariant

# Years outside are typing errors (0203-01), and datetime's own range ends would break `bounds`.
YEAR_MIN = 2000
YEAR_MAX = 2999

_LABEL = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Period:
    """One month, 2000-01 to 2999-12; sorts in calendar order."""

    year: int
    month: int

    def __post_init__(self) -> None:
        invariant(YEAR_MIN <= self.year <= YEAR_MAX, f"year out of range: {self.year}")
        invariant(1 <= self.month <= 12, f"month out of range: {self.month}")

    @classmethod
    def parse(cls, text: str) -> "Period":
        """Return the period that a label names, after stripping and NFC.

        Raises:
            InvalidInput: Not `YYYY-MM` in ASCII digits (NFC keeps full-width ones, so they stay refused), no
                such month, or a year outside 2000 to 2999.
        """
        match = _LABEL.fullmatch(unicodedata.normalize("NFC", text.strip(" \t\r\n")))
        if match is None:
            raise InvalidInput(f"{echo(text)} is not a period: a month such as 2031-03 (YYYY-MM) is expected")
        year, month = int(match[1]), int(match[2])
        if not YEAR_MIN <= year <= YEAR_MAX:
            raise InvalidInput(f"{echo(text)} is not a period: years go from {YEAR_MIN} to {YEAR_MAX}")
        return cls(year, month)

    def __str__(self) -> str:
        return f"{self.year:04d}-{self.month:02d}"

    def next(self) -> "Period":
        """Return the month after; InvalidInput after 2999-12."""
        return self._shifted(1)

    def previous(self) -> "Period":
        """Return the month before; InvalidInput before 2000-01."""
        return self._shifted(-1)

    @staticmethod
    def range(first: "Period", last: "Period") -> Iterator["Period"]:
        """Yield every period from `first` to `last`, both included.

        Raises:
            InvalidInput: `last` is before `first`.
        """
        if last < first:
            raise InvalidInput(f"{last} is before {first}")
        period = first
        while period < last:
            yield period
            period = period.next()
        yield last

    def bounds(self, zone: ZoneInfo) -> tuple[datetime, datetime]:
        """Return start (included) and end (excluded) as aware UTC instants.

        The end is the next period's start by the same rule, so periods tile: no gap and no overlap. Midnight
        that clocks skip means the instant of the skip, and midnight that happens twice means the first
        (PEP 495, fold 0).
        """
        end = (self.year, self.month + 1) if self.month < 12 else (self.year + 1, 1)
        return _midnight(self.year, self.month, zone), _midnight(*end, zone)

    def _shifted(self, months: int) -> "Period":
        year, month_index = divmod(self.year * 12 + self.month - 1 + months, 12)
        if not YEAR_MIN <= year <= YEAR_MAX:
            raise InvalidInput(f"no period beside {self}: years go from {YEAR_MIN} to {YEAR_MAX}")
        return Period(year, month_index + 1)


def _midnight(year: int, month: int, zone: ZoneInfo) -> datetime:
    return datetime(year, month, 1, tzinfo=zone).astimezone(UTC)
