"""What a run's control asks of the ledger: one decision at a time, each with who and why."""

from abc import ABC, abstractmethod

from temporalio import activity

from workflows.contracts import Approval, CapRaise, Decision, Hold, Message, RunKey, Standing

RULE = "rule"  # who decides where no person has to


class ControlRequest(Message):
    """One decision about one run, on its way into the ledger."""

    run: RunKey
    decision: Decision


class ApprovalRequest(Message):
    """An approval on its way into the ledger."""

    run: RunKey
    approval: Approval


class HoldRequest(Message):
    """A hold on its way into the ledger."""

    run: RunKey
    hold: Hold


class CapRaiseRequest(Message):
    """A higher cap on its way into the ledger."""

    run: RunKey
    cap_raise: CapRaise


class CanaryResult(Message):
    """How the lines of slice 0 stand, those skipped at planning left out.

    `unknown` is everything that has not ended and waits for a due time; what is left is paid or paying.
    """

    lines: int
    declined: int
    not_paid_otherwise: int
    unknown: int


class ControlActivities(ABC):
    """What people and rules decide about a run: one guarded write and one event, in one transaction.

    Each is idempotent. A decision that the run's state does not allow comes back with `Standing.refused`.
    """

    @abstractmethod
    @activity.defn(name="approve_run")
    async def approve_run(self, request: ApprovalRequest) -> Standing:
        """Let a planned run charge, if the hash is its plan's."""

    @abstractmethod
    @activity.defn(name="hold_run")
    async def hold_run(self, request: HoldRequest) -> Standing:
        """Let the run start nothing new. A pause replaces a hold by a rule; nothing else replaces one."""

    @abstractmethod
    @activity.defn(name="resume_run")
    async def resume_run(self, request: ControlRequest) -> Standing:
        """Lift whatever hold there is."""

    @abstractmethod
    @activity.defn(name="close_breaker")
    async def close_breaker(self, request: ControlRequest) -> Standing:
        """Lift a breaker's hold and no other: Stripe answers again."""

    @abstractmethod
    @activity.defn(name="cancel_run")
    async def cancel_run(self, request: ControlRequest) -> Standing:
        """Let the run end: nothing new starts, and what is open is canceled. Never undone."""

    @abstractmethod
    @activity.defn(name="raise_cap")
    async def raise_cap(self, request: CapRaiseRequest) -> Standing:
        """Raise caps, and lift the hold of a run that stands at its cap."""

    @abstractmethod
    @activity.defn(name="read_canary")
    async def read_canary(self, run: RunKey) -> CanaryResult:
        """Say how the lines of slice 0 stand."""

    @abstractmethod
    @activity.defn(name="release_canary")
    async def release_canary(self, request: ControlRequest) -> Standing:
        """Record that the rest may follow the canary, where no person had to say so."""
