"""The calendar's side of the ledger: which periods have a run, and what was decided about those without one.

The ledger remembers longer than Temporal does, and it is the only one who knows what was billed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from activities.ledger import sql
from activities.ledger.database import Pool
from workflows.domain.errors import RefusedToStart, invariant

_SQL = sql.load("calendar.sql")

RUNS_PER_PERIOD_MAX = 1_000


class PeriodDecision(StrEnum):
    """What somebody decided about a period that was missed."""

    BILL = "bill"
    WAIVE = "waive"


@dataclass(frozen=True, slots=True)
class PeriodRun:
    """One run of a period."""

    run_id: str
    phase: str
    canceling: bool

    @property
    def failed(self) -> bool:
        """Whether it gave its period back: it never had a plan, and charged nobody."""
        return self.phase == "failed"


@dataclass(frozen=True, slots=True)
class NextRun:
    """The id that the period's next run has, and the run that the period has already, if one counts."""

    run_id: str
    owner: PeriodRun | None


@dataclass(frozen=True, slots=True)
class Waiver:
    """Who decided not to bill a period, and why."""

    who: str
    reason: str

    def __str__(self) -> str:
        """Return it as a sentence without its subject, the period."""
        return f"waived by {self.who}: {self.reason}"


class CalendarLedger:
    """Runs by period, and `calendar_decisions`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def now(self) -> datetime:
        """Return the ledger's time, as an aware UTC instant."""
        now: datetime = await self._pool.fetchval(_SQL["calendar_now"])
        return now

    async def next_run(self, account: str, period: str) -> NextRun:
        """Return what a schedule would start for a period, and who has that period already.

        A run that failed never charged anything. One that was canceled counts: a person ended it, and a
        schedule that is fired again must not begin anew what a person has stopped.
        """
        rows = await self._pool.fetch(_SQL["runs_of_period"], account, period)
        runs = {row["run_id"]: PeriodRun(**dict(row)) for row in rows}
        base = f"billing-run/{account}/{period}"
        ids = [base, *(f"{base}/r{number}" for number in range(2, RUNS_PER_PERIOD_MAX + 1))]
        owner = None
        for run_id in ids:
            run = runs.get(run_id)
            if run is None:
                return NextRun(run_id, owner)
            owner = owner if run.failed else run
        raise RefusedToStart(f"{account} {period} has had {RUNS_PER_PERIOD_MAX} runs")

    async def unbilled(self, account: str, periods: Sequence[str]) -> list[str]:
        """Return those of some periods that nobody has billed and nobody has waived, in the order given."""
        billed = await self._pool.fetch(_SQL["billed_periods"], account, list(periods))
        waived = await self._pool.fetch(_SQL["waived_periods"], account, list(periods))
        settled = {row["period"] for row in (*billed, *waived)}
        return [period for period in periods if period not in settled]

    async def waiver(self, account: str, period: str) -> Waiver | None:
        """Return the newest decision about a period where that is not to bill it."""
        row = await self._pool.fetchrow(_SQL["waived_periods"], account, [period])
        return None if row is None else Waiver(who=row["who"], reason=row["reason"])

    async def decide(
        self, account: str, period: str, decision: PeriodDecision, *, schedule: str, who: str, reason: str
    ) -> None:
        """Record what was decided about a period, by whom and why; the newest decision counts."""
        invariant(who and reason, "a decision has somebody who took it, and a reason")
        await self._pool.execute(_SQL["decide_period"], account, period, schedule, decision, who, reason)
