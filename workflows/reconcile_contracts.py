"""What the reconciliation workflow asks of the outside world, and the messages that go in and out."""

from abc import ABC, abstractmethod

from pydantic import Field
from temporalio import activity

from workflows.contracts import Decision, Message, Timing


class ReconcileRequest(Message):
    """What starts a reconciliation: a run, or an account and a span (epoch seconds by the ledger's clock).

    `workflow_id` is one per run, and one per account: of each there is one reconciliation at a time.
    `until_epoch_seconds` None is the moment at which it begins.
    """

    workflow_id: str
    account: str
    run_id: str | None = None
    since_epoch_seconds: float | None = None
    until_epoch_seconds: float | None = None
    repair: bool = False
    decided_by: Decision
    timing: Timing = Timing.PRODUCTION


class ReconcileOpening(Message):
    """Ask the ledger to keep a reconciliation. `owner` is the run id of the workflow's first execution."""

    request: ReconcileRequest
    owner: str


class ReconcileKey(Message):
    """Which reconciliation an activity works for."""

    reconciliation_id: str
    account: str


class ReconcilePlan(Message):
    """How it is gone about: slices of the account's time to scan, or none where customers are listed."""

    key: ReconcileKey
    how: str
    slices: int
    charges: int
    """Charges of the scope that anything was ever sent for."""
    customers: int
    repair: bool


class ScanSlice(Message):
    """One slice of the scan; where it takes more pages than there are customers, those are listed instead."""

    key: ReconcileKey
    slice_no: int
    customers: int


class Looked(Message):
    """What one batch of looks came to: how many suspects are left."""

    looked: int = 0
    left: int = 0


class ReconcileProgress(Message):
    """How far a reconciliation has come: `step` is what it does, `left` how many charges to look at."""

    step: str = "opening"
    slices: int = 0
    slices_done: int = 0
    charges: int = 0
    suspects: int = 0
    left: int = 0


class ReconcileReport(Message):
    """What a reconciliation came to. The differences themselves are in the ledger.

    `requests` counts what Stripe was asked, by purpose (`pages`, `looks`, `refunds`, `events`, `repairs`);
    `bound` is what DESIGN.md, section 8, allows for pages and looks: the pages, and one question for each
    customer who was looked at. `incomplete` says what could not be read: with anything in it, the absence of
    a difference proves nothing.
    """

    reconciliation_id: str
    account: str
    run_id: str | None = None
    how: str = "scan"
    charges: int = 0
    suspects: int = 0
    """Charges that did not agree at first sight, and were looked at one by one."""
    differing: int = 0
    settled: int = 0
    """Charges in flight that were settled on the way."""
    in_flight: int = 0
    """Those that only their window can settle, or their own run."""
    found: dict[str, int] = Field(default_factory=dict)
    """Differences by kind, as they were found."""
    repaired: dict[str, int] = Field(default_factory=dict)
    open: dict[str, int] = Field(default_factory=dict)
    requests: dict[str, int] = Field(default_factory=dict)
    bound: int = 0
    events_looked_for: bool = True
    """Not where no event of the account was ever received: it has no receiver that could have missed one."""
    incomplete: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether everything was read and no difference is open."""
        return not self.open and not self.incomplete


class ReconcileActivities(ABC):
    """The ledger's and Stripe's part of a reconciliation. Each can be repeated at any point."""

    @abstractmethod
    @activity.defn(name="open_reconciliation")
    async def open_reconciliation(self, opening: ReconcileOpening) -> ReconcilePlan:
        """Keep it, choose how to go about it, and cut the scan into slices; idempotent for its owner."""

    @abstractmethod
    @activity.defn(name="scan_slice")
    async def scan_slice(self, work: ScanSlice) -> None:
        """Read one slice of the account's PaymentIntents, and keep what agrees and what is suspect."""

    @abstractmethod
    @activity.defn(name="suspect_unseen")
    async def suspect_unseen(self, key: ReconcileKey) -> int:
        """Suspect every charge of the scope that no page has shown, or that is in flight; return how many."""

    @abstractmethod
    @activity.defn(name="look_at_suspects")
    async def look_at_suspects(self, key: ReconcileKey) -> Looked:
        """Look at a batch of suspects on both sides: settle, compare, keep what differs, repair."""

    @abstractmethod
    @activity.defn(name="find_missed_events")
    async def find_missed_events(self, key: ReconcileKey) -> int:
        """Compare Stripe's list of events with the inbox, keep what is missing; return how many."""

    @abstractmethod
    @activity.defn(name="close_reconciliation")
    async def close_reconciliation(self, key: ReconcileKey) -> ReconcileReport:
        """End what is not found any more, freeze the report, and drop what was only needed on the way."""
