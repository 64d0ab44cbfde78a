"""What people and rules may decide about a run while it goes on, and how the workflow hears of it.

The ledger decides: each update asks an activity, which writes the decision under its guards or says why not.
What the workflow knows of it is a copy of the newest answer. Decisions go one after the other, reads of the
copy among them, or a pause and a resume could be answered in the other order than the ledger took them in.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.notify import start_notifications

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import (
        REASON_CHARACTERS_MAX,
        Approval,
        CapRaise,
        Decision,
        Due,
        Hold,
        HoldKind,
        Progress,
        RunActivities,
        RunInput,
        RunKey,
        RunProgress,
        Standing,
    )
    from workflows.control_contracts import (
        RULE,
        ApprovalRequest,
        CapRaiseRequest,
        ControlActivities,
        ControlRequest,
        HoldRequest,
    )
    from workflows.domain.plan_hash import refuse_hash
    from workflows.policies import TIMINGS, forever, ledger

REFUSED = "Refused"  # the type of the error that a refused update ends with

Request = TypeVar("Request")


class RunControl:
    """The updates of a run, and the part of its state that they change."""

    def __init__(self, run: RunInput) -> None:
        self._request = run.request
        self._state = run.state
        self._key = RunKey(run_id=run.request.run_id, account=run.request.account)
        self._retry = forever(run.request.timing)
        self._slices_done = run.state.next_slice - len(run.state.halted_slices)
        self._wakes = 0
        self._wakes_before_probe = 0
        self._halted: dict[str, str] = {}
        self._waiting_until: float | None = None
        self._deciding = asyncio.Lock()
        self._announced = run.state.hold  # the hold that people are told of already

    @workflow.update(name="tick")
    async def tick(self) -> RunProgress:
        """Wake the run at once: it asks the ledger what is due now. Operators and moved clocks use this."""
        self._wakes += 1
        return self.progress()

    @workflow.query(name="progress")
    def progress(self) -> RunProgress:
        """Coarse counters; details are SQL."""
        return RunProgress(
            run_id=self._key.run_id,
            phase=self._state.phase,
            slices=self._state.slices,
            slices_done=self._slices_done,
            settled=self._state.settled,
            deferred=self._state.deferred,
            halted=next(iter(self._halted.values()), None),
            waiting_until_epoch_seconds=self._waiting_until,
            plan_hash=self._state.plan_hash,
            hold=self._state.hold,
            hold_reason=self._state.hold_reason,
            canceling=self._state.canceling,
        )

    @workflow.update(name="approve")
    async def approve(self, approval: Approval) -> Standing:
        """Let the run charge what it has planned, if the hash is its plan's."""
        request = ApprovalRequest(run=self._key, approval=approval)
        return await self._decide(ControlActivities.approve_run, request)

    @approve.validator
    def _validate_approve(self, approval: Approval) -> None:
        self._refuse_unless_under_way()
        if not self._state.plan_hash:
            raise _refused(f"{self._key.run_id} is still being planned: there is nothing to approve yet")
        refusal = refuse_hash(self._key.run_id, self._state.plan_hash, approval.plan_hash)
        if refusal is not None:
            raise _refused(refusal)
        if self._state.canceling:
            raise _refused(f"{self._key.run_id} is being canceled: it can not be approved any more")

    @workflow.update(name="pause")
    async def pause(self, decision: Decision) -> Standing:
        """Start nothing new. What is in flight is finished; the answer says how much there is."""
        hold = Hold(kind=HoldKind.PAUSED, who=decision.who, reason=decision.reason)
        return await self._decide(ControlActivities.hold_run, HoldRequest(run=self._key, hold=hold))

    @pause.validator
    def _validate_pause(self, decision: Decision) -> None:  # noqa: ARG002 - as the update
        self._refuse_unless_under_way()
        if self._state.canceling:
            raise _refused(f"{self._key.run_id} is being canceled: nothing new starts anyway")

    @workflow.update(name="resume")
    async def resume(self, decision: Decision) -> Standing:
        """Go on, whatever the run was held for."""
        request = ControlRequest(run=self._key, decision=decision)
        return await self._decide(ControlActivities.resume_run, request)

    @resume.validator
    def _validate_resume(self, decision: Decision) -> None:  # noqa: ARG002 - as the update
        self._refuse_unless_under_way()
        if self._state.canceling:
            raise _refused(f"{self._key.run_id} is being canceled, and that is not undone")

    @workflow.update(name="cancel")
    async def cancel(self, decision: Decision) -> Standing:
        """End the run safely: nothing new starts, and what is open is canceled. Never undone."""
        request = ControlRequest(run=self._key, decision=decision)
        return await self._decide(ControlActivities.cancel_run, request)

    @cancel.validator
    def _validate_cancel(self, decision: Decision) -> None:  # noqa: ARG002 - as the update
        self._refuse_unless_under_way()

    @workflow.update(name="raise_cap")
    async def raise_cap(self, cap_raise: CapRaise) -> Standing:
        """Let the run move more. One that was held at its cap goes on."""
        request = CapRaiseRequest(run=self._key, cap_raise=cap_raise)
        return await self._decide(ControlActivities.raise_cap, request)

    @raise_cap.validator
    def _validate_raise_cap(self, cap_raise: CapRaise) -> None:
        self._refuse_unless_under_way()
        if not self._state.plan_hash:
            raise _refused(f"{self._key.run_id} is still being planned: it has no cap yet")
        if not cap_raise.caps_minor:
            raise _refused("no currency was named whose cap is to be raised")

    def _refuse_unless_under_way(self) -> None:
        if self._state.phase == "lock":
            raise _refused(f"{self._key.run_id} has not taken its period yet: try again in a moment")
        if self._state.phase == "close":
            raise _refused(f"{self._key.run_id} is closing: nothing can be decided about it any more")

    async def _decide(
        self, activity: Callable[[Any, Request], Awaitable[Standing]], request: Request
    ) -> Standing:
        """Write a person's decision into the ledger. Raises ApplicationError where the ledger refuses it."""
        standing = await self._rule(activity, request)
        if standing.refused is not None:
            raise _refused(standing.refused)
        return standing

    async def _rule(
        self, activity: Callable[[Any, Request], Awaitable[Standing]], request: Request
    ) -> Standing:
        """Write a decision into the ledger and take over what stands there now."""
        async with self._deciding:
            standing = await workflow.execute_activity_method(
                activity,
                request,
                start_to_close_timeout=ledger(self._request.timing),
                retry_policy=self._retry,
            )
            self._take(standing)
            return standing

    def _take(self, stands: Standing) -> None:
        before = self._state
        self._take_hold(stands.hold, stands.hold_reason, canceling=stands.canceling)
        self._update(
            approved=self._state.approved or stands.phase in {"charging", "settling", "retrying"},
            canary_passed=self._state.canary_passed or stands.canary_released,
        )
        if self._state != before:
            self._wakes += 1
        if self._state.hold is not before.hold:
            self._wakes_before_probe = self._wakes

    def _take_hold(self, hold: HoldKind | None, reason: str | None, *, canceling: bool) -> None:
        if hold is not self._announced:
            self._announced = None
        self._update(
            hold=hold,
            hold_reason=reason,
            canceling=canceling,
            probes=self._state.probes and hold is HoldKind.BREAKER,
            held_for_declines=self._state.held_for_declines and hold is not None,
            # Such a hold never closes by itself: a person has seen it, and let the run go on.
            declines_accepted=self._state.declines_accepted
            or (self._state.held_for_declines and hold is None and not canceling),
        )

    async def _hold_for(self, progress: Progress) -> None:
        """Hold the run for what an activity met, unless it is held already or is being canceled."""
        if progress.halted_by_declines and self._state.declines_accepted:
            return  # it began before they were accepted, and will be begun again
        kind = progress.halted_kind or HoldKind.BREAKER
        held_by_breaker = self._state.hold is HoldKind.BREAKER
        await self._hold(kind, progress.halted or "")
        if self._state.hold is HoldKind.BREAKER:
            # What only a person can mend outranks what may pass by itself.
            may_probe = self._state.probes or not held_by_breaker
            self._update(
                probes=may_probe and progress.closes_by_itself,
                held_for_declines=self._state.held_for_declines or progress.halted_by_declines,
            )

    async def _hold(self, kind: HoldKind, reason: str) -> None:
        hold = Hold(kind=kind, who=RULE, reason=_one_line(reason) or kind.value)
        await self._rule(ControlActivities.hold_run, HoldRequest(run=self._key, hold=hold))
        if self._state.hold is kind and self._announced is not kind:
            self._announced = kind
            await start_notifications(self._key, self._request.timing)

    def _by_rule(self, reason: str) -> ControlRequest:
        return ControlRequest(run=self._key, decision=Decision(who=RULE, reason=_one_line(reason)))

    async def _read_due(self) -> Due:
        """Ask the ledger what is due, and whether the run is held or being canceled."""
        async with self._deciding:
            due = await workflow.execute_activity_method(
                RunActivities.read_due,
                self._key,
                start_to_close_timeout=ledger(self._request.timing),
                retry_policy=self._retry,
            )
            self._take_hold(due.hold, due.hold_reason, canceling=due.canceling)
            return due

    @property
    def _is_held(self) -> bool:
        """Whether first sends wait. A run that is being canceled is not held: it has to end."""
        return self._state.hold is not None and not self._state.canceling

    @property
    def _poll_max(self) -> float:
        return TIMINGS[self._request.timing].poll_max

    async def _wait(self, seconds: float, wakes_seen: int) -> None:
        """Sleep, but not past a tick or a decision, and never so long that a moved clock goes unseen.

        `wakes_seen` is from before the ledger was asked: a tick that came while it answered counts too.
        """
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: self._wakes > wakes_seen, timeout=timedelta(seconds=max(seconds, 0.1))
            )
        self._waiting_until = None

    async def _continue_as_new(self) -> None:
        # Handlers cut off by continue-as-new would lose their updates.
        await workflow.wait_condition(workflow.all_handlers_finished)
        self._update(generation=self._state.generation + 1)
        workflow.continue_as_new(RunInput(request=self._request, state=self._state))

    def _should_continue_as_new(self) -> bool:
        return workflow.info().is_continue_as_new_suggested()

    def _update(self, **changes: Any) -> None:
        self._state = self._state.model_copy(update=changes)


def _one_line(reason: str) -> str:
    # A reason that the contract refused here would stop the workflow itself.
    printable = "".join(character if character.isprintable() else " " for character in reason)
    return printable[:REASON_CHARACTERS_MAX]


def _refused(reason: str) -> ApplicationError:
    return ApplicationError(reason, type=REFUSED, non_retryable=True)
