"""`[[reconcile]]` of the file of schedules: when an account is compared with Stripe, and how far back."""

from datetime import timedelta
from typing import Annotated, Literal
from zoneinfo import available_timezones

from pydantic import BaseModel, ConfigDict, Field, model_validator

from worker.schedules.keys import CATCH_UP_SECONDS, Account, CatchUp, Name, anchor_of, said
from workflows.contracts import Timing
from workflows.domain.calendar import BillingCalendar, Bills, parse_at
from workflows.domain.echo import echo
from workflows.domain.periods import PeriodKind
from workflows.launch_reconcile_contracts import LOOK_BACK_DAYS_MAX, ReconcileOrder

# A comparison has no first period: any that is past will do, and Temporal's calendars begin in 2000.
_SINCE = {PeriodKind.DAY: "2026-01-01", PeriodKind.WEEK: "2026-W01", PeriodKind.MONTH: "2026-01"}


class ReconcileEntry(BaseModel):
    """One `[[reconcile]]` of the file. Unknown keys are refused: a misspelt one would be a wish unheard."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    account: Account
    zone: str
    every: Literal["month", "week", "day"] = "day"
    anchor: str | int | None = None
    at: str = "05:00"
    look_back_days: Annotated[int, Field(ge=1, le=LOOK_BACK_DAYS_MAX)] = 7
    repair: bool = False
    catch_up: CatchUp = CATCH_UP_SECONDS

    @model_validator(mode="after")
    def _check(self) -> "ReconcileEntry":
        if self.zone not in available_timezones():
            raise ValueError(f"zone: {echo(self.zone)} is no IANA time zone, such as Europe/Berlin")
        self.calendar()
        return self

    def calendar(self) -> BillingCalendar:
        """Return when it fires: as a period begins. Raises ValueError where the keys do not agree."""
        kind = PeriodKind(self.every)
        return BillingCalendar(
            zone=self.zone,
            every=kind,
            since=_SINCE[kind],
            anchor=anchor_of(self.anchor, kind),
            bills=Bills.CURRENT,
            at_seconds=said("at", parse_at, self.at),
        )

    def order(self, *, timing: Timing) -> ReconcileOrder:
        """Return what Temporal keeps of this schedule and hands to the launcher."""
        return ReconcileOrder(
            schedule=self.name,
            account=self.account,
            calendar=self.calendar(),
            look_back_days=self.look_back_days,
            repair=self.repair,
            timing=timing,
        )

    def catch_up_window(self) -> timedelta:
        """Return how late Temporal may still make a firing good by itself."""
        return timedelta(seconds=self.catch_up)
