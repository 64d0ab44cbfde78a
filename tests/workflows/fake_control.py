"""The control contract over the fakes' memory, with the ledger's guards as far as a workflow can tell."""

from collections.abc import Callable, Sequence
from typing import Any

from temporalio import activity

from tests.workflows.fake_ledger import LINES_PER_SLICE, PLAN_HASH, FakeLedger
from workflows import control_contracts as contracts
from workflows.contracts import Decision, HoldKind, RunKey, Standing
from workflows.control_contracts import (
    ApprovalRequest,
    CanaryResult,
    CapRaiseRequest,
    ControlRequest,
    HoldRequest,
)

HOLD_ACTIONS = {
    HoldKind.PAUSED: "paused",
    HoldKind.CANARY: "canary_held",
    HoldKind.BREAKER: "breaker_opened",
    HoldKind.CAP: "cap_reached",
}


class FakeControlActivities(contracts.ControlActivities):
    """Decisions, from memory: one event for each that changed something."""

    def __init__(self, ledger: FakeLedger) -> None:
        self._ledger = ledger

    @activity.defn(name="approve_run")
    async def approve_run(self, request: ApprovalRequest) -> Standing:
        """Approve the plan's own hash."""
        ledger, approval = self._ledger, request.approval
        if approval.plan_hash != PLAN_HASH:
            return await self._answer("approve_run", request.run, refused="another hash")
        if ledger.phase == "planned" and not ledger.canceling:
            ledger.phase = "charging"
            self._note("approved", approval)
        return await self._answer("approve_run", request.run)

    @activity.defn(name="hold_run")
    async def hold_run(self, request: HoldRequest) -> Standing:
        """Hold; a pause replaces a hold by a rule."""
        ledger, hold = self._ledger, request.hold
        if self._refused:
            return await self._answer("hold_run", request.run, refused=self._refused)
        if ledger.hold is None or (hold.kind is HoldKind.PAUSED and ledger.hold is not HoldKind.PAUSED):
            ledger.hold, ledger.hold_reason = hold.kind, hold.reason
            self._note(HOLD_ACTIONS[hold.kind], hold)
        return await self._answer("hold_run", request.run)

    @activity.defn(name="resume_run")
    async def resume_run(self, request: ControlRequest) -> Standing:
        """Lift any hold."""
        ledger = self._ledger
        if self._refused:
            return await self._answer("resume_run", request.run, refused=self._refused)
        if ledger.hold is not None:
            judged = any(action == "canary_held" for action, _ in ledger.events)
            releases = judged and not ledger.canary_released
            ledger.canary_released = ledger.canary_released or releases
            ledger.hold = ledger.hold_reason = None
            self._note("canary_released" if releases else "resumed", request.decision)
        return await self._answer("resume_run", request.run)

    @activity.defn(name="close_breaker")
    async def close_breaker(self, request: ControlRequest) -> Standing:
        """Lift a breaker's hold."""
        if self._ledger.hold is HoldKind.BREAKER:
            self._ledger.hold = self._ledger.hold_reason = None
            self._note("breaker_closed", request.decision)
        return await self._answer("close_breaker", request.run)

    @activity.defn(name="cancel_run")
    async def cancel_run(self, request: ControlRequest) -> Standing:
        """Cancel, once."""
        ledger, decision = self._ledger, request.decision
        if ledger.phase == "closed":
            return await self._answer("cancel_run", request.run, refused="the run has ended")
        if not ledger.canceling:
            ledger.canceling, ledger.hold, ledger.hold_reason = True, None, None
            ledger.reason = f"canceled by {decision.who}: {decision.reason}"
            self._note("cancel_requested", decision)
        return await self._answer("cancel_run", request.run)

    @activity.defn(name="raise_cap")
    async def raise_cap(self, request: CapRaiseRequest) -> Standing:
        """Raise the one cap there is, usd."""
        ledger, cap_minor = self._ledger, request.cap_raise.caps_minor.get("usd", 0)
        if cap_minor < ledger.cap_minor:
            return await self._answer("raise_cap", request.run, refused="a cap never goes down")
        ledger.cap_minor = cap_minor
        if ledger.hold is HoldKind.CAP:
            ledger.hold = ledger.hold_reason = None
        self._note("cap_raised", request.cap_raise)
        return await self._answer("raise_cap", request.run)

    @activity.defn(name="read_canary")
    async def read_canary(self, run: RunKey) -> CanaryResult:  # noqa: ARG002 - the contract
        """Say what the test said."""
        await self._ledger.note("read_canary")
        lines, declined, otherwise, unknown = self._ledger.canary
        return CanaryResult(lines=lines, declined=declined, not_paid_otherwise=otherwise, unknown=unknown)

    @activity.defn(name="release_canary")
    async def release_canary(self, request: ControlRequest) -> Standing:
        """Release the canary."""
        if not self._ledger.canary_released:
            self._ledger.canary_released = True
            self._note("canary_released", request.decision)
        return await self._answer("release_canary", request.run)

    @property
    def _refused(self) -> str | None:
        if self._ledger.phase == "closed":
            return "the run has ended"
        return "the run is being canceled" if self._ledger.canceling else None

    def _note(self, action: str, decision: Decision) -> None:
        self._ledger.events.append((action, decision.who))

    async def _answer(self, call: str, run: RunKey, *, refused: str | None = None) -> Standing:
        ledger = self._ledger
        await ledger.note(call)
        selected = LINES_PER_SLICE * ledger.slices
        not_started = LINES_PER_SLICE * len(ledger.slices_open)
        return Standing(
            run_id=run.run_id,
            phase=ledger.phase,
            hold=ledger.hold,
            hold_reason=ledger.hold_reason,
            canceling=ledger.canceling,
            canary_released=ledger.canary_released,
            selected=selected,
            settled=selected - not_started,
            in_flight=0,
            not_started=not_started,
            refused=refused,
        )


def fake_control_activities(ledger: FakeLedger) -> Sequence[Callable[..., Any]]:
    """Return every activity of the control contract, over `ledger`, for a worker."""
    control = FakeControlActivities(ledger)
    return [
        control.approve_run,
        control.hold_run,
        control.resume_run,
        control.close_breaker,
        control.cancel_run,
        control.raise_cap,
        control.read_canary,
        control.release_canary,
    ]
