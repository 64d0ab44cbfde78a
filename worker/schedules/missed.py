"""Which firings were missed: the calendar beside the ledger, which remembers longer than Temporal."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from activities.ledger.calendar import CalendarLedger
from worker.schedules.schedule_file import ScheduleEntry
from workflows.domain.calendar import Firing

# One that was due just now is being launched, and not missed.
GRACE = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class MissedFiring:
    """A period that was due and that no run has billed."""

    entry: ScheduleEntry
    firing: Firing
    late: timedelta

    @property
    def period(self) -> str:
        """The period's label."""
        return str(self.firing.period)

    @property
    def label(self) -> str:
        """Schedule and period."""
        return f"{self.entry.name} {self.period}"


async def find_missed(ledger: CalendarLedger, entries: Sequence[ScheduleEntry]) -> list[MissedFiring]:
    """Return what was due by the ledger's clock and has no run, oldest first for each schedule.

    A run that failed before it had a plan does not count, and neither does a period that somebody waived.
    """
    now = await ledger.now()
    missed: list[MissedFiring] = []
    for entry in entries:
        missed += await _missed_by(ledger, entry, now)
    return missed


async def _missed_by(ledger: CalendarLedger, entry: ScheduleEntry, now: datetime) -> list[MissedFiring]:
    due = {str(firing.period): firing for firing in entry.calendar().firings_until(now - GRACE)}
    unbilled = await ledger.unbilled(entry.account, list(due))
    return [MissedFiring(entry, due[period], now - due[period].at) for period in unbilled]
