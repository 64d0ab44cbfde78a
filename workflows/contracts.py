"""What workflows ask of the outside world, as abstract activities and the messages that go in and out.

Workflows own these contracts and `activities` implements them, so that no workflow ever imports a database or
Stripe. Messages are frozen pydantic models with counters and names in them, never lists of customers.
"""

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from temporalio import activity

from workflows.domain.retry_policy import DEFAULT_POLICY, RetryPolicy
from workflows.domain.timing import Timing as Timing  # noqa: PLC0414 - a part of what runs are asked with


class Message(BaseModel):
    """The base of every message: frozen, and deaf to unknown fields, which a newer worker may send."""

    model_config = ConfigDict(frozen=True)


# The ledger can't keep a NUL, and terminals obey the others: a decision with one of them is refused as it
# comes in, since an activity that can never write it would keep every later decision waiting.
_NO_CONTROL_CHARACTERS = r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*$"
_ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f]*$"
REASON_CHARACTERS_MAX = 1_000
CAP_MINOR_MAX = 2**63 - 1  # a bigint


def _refuse_unseen(text: str) -> str:
    if not any(character.isprintable() and not character.isspace() for character in text):
        raise ValueError("nothing in it can be seen")
    return text


Words = Annotated[
    str,
    StringConstraints(
        strip_whitespace=True, max_length=REASON_CHARACTERS_MAX, pattern=_NO_CONTROL_CHARACTERS
    ),
    AfterValidator(_refuse_unseen),
]


class Decision(Message):
    """Who decided something about a run, and why. Both end up in the run's audit trail.

    Blanks around them don't count. Of control characters a reason may hold line breaks and tabs.
    """

    who: Annotated[
        str,
        StringConstraints(strip_whitespace=True, max_length=200, pattern=_ONE_LINE),
        AfterValidator(_refuse_unseen),
    ]
    reason: Words


class HoldKind(StrEnum):
    """Why a run starts nothing new."""

    PAUSED = "paused"  # a person said so
    CANARY = "canary"  # the first lines are through, and somebody is to look at them
    BREAKER = "breaker"  # going on would burn through customers
    CAP = "cap"  # the spend cap is reached


class Canary(Message):
    """Charge the first `lines` alone, then hold; or go on by itself while declines stay within the rule.

    `declined_percent_max` None holds always; otherwise the run goes on where at most that share of the canary
    ended without money and none of it is of unknown outcome (`workflows.domain.canary`).
    """

    lines: int = Field(default=0, ge=0, le=5_000)
    declined_percent_max: float | None = Field(default=None, ge=0, le=100)


class BelowMinimum(StrEnum):
    """What becomes of a line under Stripe's minimum amount: owed later, given up, or sent all the same."""

    CARRY_FORWARD = "carry_forward"
    WAIVE = "waive"
    CHARGE = "charge"


class RunRequest(Message):
    """What starts a run. The source must be readable by the worker, and be what it was when it was hashed.

    `source` is a spec that `activities.sources` opens, never a connection string: secrets stay with the
    workers. `approved_hash` is the plan hash that a preview showed and its reader approved beforehand; the
    run goes on by itself if its own plan has that very hash. `approve_any` is `--yes`: any plan is approved
    by whoever started the run; `approve_within_minor` approves one of these currencies alone, within these
    totals. The workflow that recovers a run names the owner it takes the row over from, and who wanted that.
    """

    account: str
    period: str
    run_id: str
    source: str
    source_sha256: str
    started_by: str
    skip_invalid: bool = False
    below_minimum: BelowMinimum = BelowMinimum.CHARGE
    approve_any: bool = False
    approved_hash: str | None = None
    approve_within_minor: dict[str, int] = Field(default_factory=dict)
    canary: Canary = Canary()
    change_percent: float = Field(default=20.0, ge=0, le=1_000_000)
    duration_limit_seconds: float | None = Field(default=None, gt=0)
    retry_policy: RetryPolicy = DEFAULT_POLICY
    recovered_owner: str | None = None
    recovered_by: Decision | None = None
    slice_size: int = Field(default=500, ge=1, le=5_000)
    slices_at_once: int = Field(default=4, ge=1, le=64)
    timing: Timing = Timing.PRODUCTION


class RunKey(Message):
    """Which run an activity works for."""

    run_id: str
    account: str


class Lock(Message):
    """Whether the lock of (account, period) is this run's; if not, who has it.

    The rest is where the run stands in the ledger: a recovered run goes on from there.
    """

    acquired: bool
    run_id: str
    phase: str
    hold: HoldKind | None = None
    hold_reason: str | None = None
    canceling: bool = False
    canary_released: bool = False


class LockRequest(Message):
    """Ask for the lock. `owner` is the run id of the workflow's first execution."""

    run: RunRequest
    owner: str


class Plan(Message):
    """What was planned. `refused` says why nothing was, and then the period is free again."""

    selected: int = 0
    skipped: int = 0
    slices: int = 0
    plan_hash: str = ""
    approved: bool = False
    refused: str | None = None


class Approval(Decision):
    """Approve the plan of this hash and no other."""

    plan_hash: str = Field(min_length=1, max_length=200)


class CapRaise(Decision):
    """Raise the cap of some currencies, in minor units. A cap never goes down."""

    caps_minor: dict[str, Annotated[int, Field(ge=0, le=CAP_MINOR_MAX)]]


class Hold(Decision):
    """Hold a run."""

    kind: HoldKind


class Standing(Message):
    """Where a run stands after a decision: counts whole (I9), and whether it is held or being canceled.

    `selected` = `settled` + `in_flight` + `not_started`, all 0 before the plan is made. `refused` says why
    the decision was not taken; then nothing has changed, and whoever sent the update gets an error. `already`
    says by whom, when and why it had been so before this decision came.
    """

    run_id: str
    phase: str
    hold: HoldKind | None = None
    hold_reason: str | None = None
    canceling: bool = False
    canary_released: bool = False
    selected: int = 0
    settled: int = 0
    in_flight: int = 0
    not_started: int = 0
    refused: str | None = None
    already: str | None = None


class Slice(Message):
    """A fixed range of a run's charges."""

    run: RunKey
    slice_no: int
    declines_accepted: bool = False


class Settling(RunKey):
    """Settle what is due in a run; `declines_accepted`, as in a slice: no rate of them holds it again."""

    declines_accepted: bool = False


class Progress(Message):
    """What one activity did. `halted` says why it stopped before its work was done, if it did.

    With a `halted_kind` the run is held for that reason; without one the work is tried again after a while.
    `closes_by_itself` is for a breaker that opened on silence: it may close once Stripe answers again, while
    one that opened on credentials or on declines waits for a person.
    """

    settled: int = 0
    deferred: int = 0
    held: int = 0  # left as they are because the run is held or is being canceled
    halted: str | None = None
    halted_kind: HoldKind | None = None
    closes_by_itself: bool = False
    halted_by_declines: bool = False


class Due(Message):
    """What is still open in a run, by the ledger's clock, and whether the run is held or being canceled.

    Of a held run only what is in flight is carried on: the last two count that alone.
    """

    open: int
    in_flight: int
    due_now: int
    next_due_seconds: float | None
    next_due_epoch_seconds: float | None = None
    hold: HoldKind | None = None
    hold_reason: str | None = None
    canceling: bool = False
    in_flight_due_now: int = 0
    next_in_flight_due_seconds: float | None = None


class RunReport(Message):
    """How a run ended. `counts` is by standing and adds up to `selected` (invariant I9)."""

    run_id: str
    phase: str
    selected: int = 0
    counts: dict[str, int] = Field(default_factory=dict)
    reason: str | None = None
    owner_run: str | None = None
    notifications: int = 0  # wait for somebody to deliver them


class RunState(Message):
    """What a run carries through continue-as-new: a handful of counters, never customers.

    `phase` is lock, plan, approve, charge, settle, retry or close. Whether the run is held, being canceled or
    approved is the ledger's knowledge, repeated here as the newest answer of an activity told it.
    """

    generation: int = 0
    phase: str = "lock"
    slices: int = 0
    next_slice: int = 0
    halted_slices: tuple[int, ...] = ()  # begun, halted, and handed on: at most `slices_at_once` of them
    selected: int = 0
    settled: int = 0
    deferred: int = 0
    plan_hash: str = ""
    approved: bool = False
    hold: HoldKind | None = None
    hold_reason: str | None = None
    probes: bool = False  # held by a breaker that may close by itself
    held_for_declines: bool = False
    declines_accepted: bool = False  # a person resumed the run after that, and for all the rest of it
    canceling: bool = False
    canary_passed: bool = False


class RunInput(Message):
    """The workflow's input: the request, and the state that earlier executions of it left."""

    request: RunRequest
    state: RunState = RunState()


class RunProgress(Message):
    """The answer to the progress query: coarse counters of the workflow; details are SQL.

    In phase `approve` the run waits for an approval of `plan_hash`.
    """

    run_id: str
    phase: str
    slices: int
    slices_done: int
    settled: int
    deferred: int
    halted: str | None
    waiting_until_epoch_seconds: float | None
    plan_hash: str = ""
    hold: HoldKind | None = None
    hold_reason: str | None = None
    canceling: bool = False


class RunActivities(ABC):
    """The ledger's part of a run: lock, plan, ask what is due, close."""

    @abstractmethod
    @activity.defn(name="lock_run")
    async def lock_run(self, request: LockRequest) -> Lock:
        """Take the lock, or say who has it. Idempotent for its own workflow."""

    @abstractmethod
    @activity.defn(name="plan_run")
    async def plan_run(self, request: RunRequest) -> Plan:
        """Stream the source into charges and freeze the plan, or refuse and free the period."""

    @abstractmethod
    @activity.defn(name="give_up_run")
    async def give_up_run(self, run: RunKey) -> Plan:
        """Free the period of a run that was canceled before it had a plan; return the plan if it has one."""

    @abstractmethod
    @activity.defn(name="read_due")
    async def read_due(self, run: RunKey) -> Due:
        """Say what is open and when it is due."""

    @abstractmethod
    @activity.defn(name="begin_settling")
    async def begin_settling(self, run: RunKey) -> None:
        """Record that every slice has been worked through."""

    @abstractmethod
    @activity.defn(name="close_run")
    async def close_run(self, run: RunKey) -> RunReport:
        """Freeze the counts and close the run."""


class ChargeActivities(ABC):
    """Stripe's part of a run: carry charges as far as they go."""

    @abstractmethod
    @activity.defn(name="charge_slice")
    async def charge_slice(self, work: Slice) -> Progress:
        """Claim a slice, settle what an earlier attempt left in flight, charge the rest."""

    @abstractmethod
    @activity.defn(name="settle_due")
    async def settle_due(self, work: Settling) -> Progress:
        """Claim what is due anywhere in the run and carry it on."""
