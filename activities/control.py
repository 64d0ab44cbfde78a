"""What people and rules decide about a run, on its way into the ledger; each answer has the counts whole."""

import contextlib
from collections.abc import Awaitable, Callable

from temporalio import activity

from activities.ledger.control import ControlLedger, Ruling
from activities.ledger.database import PERMANENT
from activities.ledger.runs import RunLedger
from workflows import control_contracts as contracts
from workflows.contracts import HoldKind, RunKey, Standing
from workflows.control_contracts import (
    RULE,
    ApprovalRequest,
    CanaryResult,
    CapRaiseRequest,
    ControlRequest,
    HoldRequest,
)
from workflows.domain.errors import InvariantViolation, StaleWrite
from workflows.domain.states import IN_FLIGHT, NOT_STARTED

TRIES_MAX = 3  # of a decision that the run's row has moved on from


class ControlActivities(contracts.ControlActivities):
    """Decisions, over the ledger of this process."""

    def __init__(self, *, control: ControlLedger, runs: RunLedger) -> None:
        self._control = control
        self._runs = runs

    @activity.defn(name="approve_run")
    async def approve_run(self, request: ApprovalRequest) -> Standing:
        """Let a planned run charge, if the hash is its plan's."""
        approval = request.approval
        return await self._decide(
            request.run,
            approval.who,
            lambda: self._control.approve(
                request.run.run_id, approval.plan_hash, who=approval.who, reason=approval.reason
            ),
        )

    @activity.defn(name="hold_run")
    async def hold_run(self, request: HoldRequest) -> Standing:
        """Let the run start nothing new."""
        hold = request.hold
        return await self._decide(
            request.run,
            hold.who,
            lambda: self._control.hold(request.run.run_id, hold.kind, who=hold.who, reason=hold.reason),
        )

    @activity.defn(name="resume_run")
    async def resume_run(self, request: ControlRequest) -> Standing:
        """Lift whatever hold there is."""
        decision = request.decision
        return await self._decide(
            request.run,
            decision.who,
            lambda: self._control.resume(request.run.run_id, who=decision.who, reason=decision.reason),
        )

    @activity.defn(name="close_breaker")
    async def close_breaker(self, request: ControlRequest) -> Standing:
        """Lift a breaker's hold and no other."""
        decision = request.decision
        return await self._decide(
            request.run,
            decision.who,
            lambda: self._control.close_breaker(request.run.run_id, who=decision.who, reason=decision.reason),
        )

    @activity.defn(name="cancel_run")
    async def cancel_run(self, request: ControlRequest) -> Standing:
        """Let the run end; what is open is canceled."""
        decision = request.decision
        return await self._decide(
            request.run,
            decision.who,
            lambda: self._control.request_cancel(
                request.run.run_id, who=decision.who, reason=decision.reason
            ),
        )

    @activity.defn(name="raise_cap")
    async def raise_cap(self, request: CapRaiseRequest) -> Standing:
        """Raise caps, and lift the hold of a run that stands at its cap."""
        wanted = request.cap_raise
        return await self._decide(
            request.run,
            wanted.who,
            lambda: self._control.raise_cap(
                request.run.run_id, wanted.caps_minor, who=wanted.who, reason=wanted.reason
            ),
        )

    @activity.defn(name="read_canary")
    async def read_canary(self, run: RunKey) -> CanaryResult:
        """Say how the lines of slice 0 stand."""
        canary = await self._control.canary(run.run_id)
        return CanaryResult(
            lines=canary.lines,
            declined=canary.declined,
            not_paid_otherwise=canary.not_paid_otherwise,
            unknown=canary.unknown,
        )

    @activity.defn(name="release_canary")
    async def release_canary(self, request: ControlRequest) -> Standing:
        """Record that the rest may follow the canary."""
        decision = request.decision
        return await self._decide(
            request.run,
            decision.who,
            lambda: self._control.release_canary(
                request.run.run_id, who=decision.who, reason=decision.reason
            ),
        )

    async def _decide(self, run: RunKey, who: str, write: Callable[[], Awaitable[Ruling]]) -> Standing:
        """Write a decision; what would fail each time is refused, since later decisions wait for this one.

        A rule's decision is tried until it is written: nobody hears a refusal of it, and a run that is to be
        held must not go on. So is everybody's while the ledger can't be reached.
        """
        try:
            ruling = await _write(write)
        except (StaleWrite, InvariantViolation, *PERMANENT) as error:
            if who == RULE:
                raise
            ruling = Ruling(refused=f"the ledger does not take it ({type(error).__name__}): {error}")
        return await self._standing(run, ruling)

    async def _standing(self, run: RunKey, ruling: Ruling) -> Standing:
        stands = await self._control.standing(run.run_id)
        counts = await self._runs.counts(run.run_id)
        in_flight = sum(counts.get(state, 0) for state in IN_FLIGHT)
        not_started = sum(counts.get(state, 0) for state in NOT_STARTED)
        selected = sum(counts.values())
        return Standing(
            run_id=run.run_id,
            phase=stands.phase,
            hold=None if stands.hold is None else HoldKind(stands.hold),
            hold_reason=stands.hold_reason,
            canceling=stands.canceling,
            canary_released=stands.canary_released,
            selected=selected,
            settled=selected - in_flight - not_started,
            in_flight=in_flight,
            not_started=not_started,
            refused=ruling.refused,
            already=ruling.already,
        )


async def _write(write: Callable[[], Awaitable[Ruling]]) -> Ruling:
    for _ in range(TRIES_MAX - 1):
        with contextlib.suppress(StaleWrite):
            return await write()
    return await write()
