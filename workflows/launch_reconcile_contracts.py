"""What a schedule hands to the launcher of a reconciliation, and what the launcher reports."""

from enum import StrEnum

from pydantic import Field

from workflows.contracts import Message, Timing
from workflows.domain.calendar import BillingCalendar

LOOK_BACK_DAYS_MAX = 366


class ReconcileOrder(Message):
    """Which account a schedule has compared with Stripe, when, and what of it.

    Compared is what was first sent in the `look_back_days` days before the firing, and until now. With
    `repair` what moves no money is repaired.
    """

    schedule: str
    account: str
    calendar: BillingCalendar
    look_back_days: int = Field(ge=1, le=LOOK_BACK_DAYS_MAX)
    repair: bool = False
    timing: Timing = Timing.PRODUCTION


class ReconcileOutcome(StrEnum):
    """What became of a firing."""

    STARTED = "started"
    GIVEN_UP = "given_up"  # another one of the account was under way for hours


class ReconcileLaunch(Message):
    """What became of a firing, and the id of the workflow that has the account."""

    schedule: str
    workflow_id: str
    outcome: ReconcileOutcome
    since_epoch_seconds: float
