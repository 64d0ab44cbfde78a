"""What the launcher asks of the outside world: which run a firing means, and who has its period already."""

from abc import ABC, abstractmethod
from datetime import datetime
from enum import StrEnum

from pydantic import Field
from temporalio import activity

from workflows.contracts import BelowMinimum, Canary, Decision, Message, RunRequest, Timing
from workflows.domain.calendar import BillingCalendar
from workflows.domain.retry_policy import DEFAULT_POLICY, RetryPolicy

PERIOD_PLACEHOLDER = "{period}"


class RunTerms(Message):
    """What every run of a schedule has in common; `workflows.contracts.RunRequest` says what each means."""

    skip_invalid: bool = False
    below_minimum: BelowMinimum = BelowMinimum.CHARGE
    canary: Canary = Canary()
    change_percent: float = Field(default=20.0, ge=0, le=1_000_000)
    retry_policy: RetryPolicy = DEFAULT_POLICY
    slice_size: int = Field(default=500, ge=1, le=5_000)
    slices_at_once: int = Field(default=4, ge=1, le=64)


class LaunchOrder(Message):
    """What a schedule starts, and what the sweep starts in its stead.

    `source` names the source of a period, with the period's label in the place of `{period}`. A plan waits
    for approval unless `approve_any`, or unless every currency's total is within `approve_within_minor`.
    Without `period` the nominal time of the firing decides; `approved_hash` and `decided_by` come with one
    that a person decided to bill.
    """

    schedule: str
    account: str
    calendar: BillingCalendar
    source: str
    approve_any: bool = False
    approve_within_minor: dict[str, int] = Field(default_factory=dict)
    terms: RunTerms = RunTerms()
    source_wait_seconds: float = Field(default=6 * 3_600.0, gt=0, le=30 * 86_400.0)
    timing: Timing = Timing.PRODUCTION
    period: str | None = None
    approved_hash: str | None = None
    decided_by: Decision | None = None


class Firing(Message):
    """One firing of an order. `nominal` is the time it was due, or began where no schedule started it."""

    order: LaunchOrder
    nominal: datetime


class Winner(Message):
    """The run that has a period. A `lost` one has neither a row nor a workflow: its id may be used again."""

    run_id: str
    phase: str
    lost: bool = False


class PreparedLaunch(Message):
    """What a firing comes to: a request to start a run with, or why none is started, and who won."""

    period: str
    request: RunRequest | None = None
    winner: Winner | None = None
    refused: str | None = None


class LaunchOutcome(StrEnum):
    """What became of a firing."""

    STARTED = "started"
    DUPLICATE = "duplicate"  # the period has a run already
    REFUSED = "refused"  # the calendar does not bill the period, or somebody waived it


class LaunchReport(Message):
    """What became of a firing, and whose the period is."""

    schedule: str
    period: str
    outcome: LaunchOutcome
    run_id: str | None = None
    phase: str | None = None
    reason: str | None = None


class LaunchActivities(ABC):
    """The ledger's and the source's part of a launch."""

    @abstractmethod
    @activity.defn(name="prepare_launch")
    async def prepare_launch(self, firing: Firing) -> PreparedLaunch:
        """Name period, run and source of a firing. Fails, to be tried again, while the source is away."""

    @abstractmethod
    @activity.defn(name="find_winner")
    async def find_winner(self, request: RunRequest) -> Winner:
        """Say how the run stands whose id Temporal has given away already."""
