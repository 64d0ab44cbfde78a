"""What a run does after its charging, for days: retries, and waiting for customers and banks.

The charging is closed for people before this begins, and the period is free for later runs. What is waited
for is in the ledger, with its times; the timer here is a hint to go and ask. So a restart, a deploy, a moved
clock or a continue-as-new in between change nothing but who asks.
"""

from temporalio import workflow

from workflows.notify import start_notifications
from workflows.run_settling import RunSettling

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import HoldKind
    from workflows.follow_up_contracts import (
        FollowedUp,
        FollowUpActivities,
        FollowUpsDue,
        FollowUpsPlanned,
    )
    from workflows.policies import CLOSE_SECONDS, IDLE_SECONDS, SLICE_SECONDS, TIMINGS, heartbeat, ledger


class RunRetrying(RunSettling):
    """Follows up what is not paid at the end of the charging."""

    async def _plan_follow_ups(self) -> None:
        """Close the charging for people where something is waited for; else the run closes as a whole."""
        planned: FollowUpsPlanned = await workflow.execute_activity_method(
            FollowUpActivities.plan_follow_ups,
            self._key,
            start_to_close_timeout=CLOSE_SECONDS,
            heartbeat_timeout=heartbeat(self._request.timing),
            retry_policy=self._retry,
        )
        if planned.notifications:
            await start_notifications(self._key, self._request.timing)
        self._update(phase="retry" if planned.open else "close")

    async def _follow_up(self) -> None:
        """Look at what is waited for as it becomes due, until nothing is. This takes days or weeks."""
        while True:
            if self._should_continue_as_new():
                await self._continue_as_new()
            wakes_seen = self._wakes
            due = await self._read_follow_ups_due()
            if due.open == 0 and due.charges.open == 0:
                break
            pause_seconds = await self._work_on(due)
            if pause_seconds > 0:
                self._waiting_until = due.next_due_epoch_seconds
                await self._wait(pause_seconds, wakes_seen)
        self._waiting_until = None
        self._update(phase="close")

    async def _work_on(self, due: FollowUpsDue) -> float:
        """Do what is due; return how many seconds there is nothing to do after that."""
        if self._is_held and self._state.hold is HoldKind.BREAKER:
            return await self._probe(due)
        charges = due.charges
        if charges.in_flight_due_now if self._is_held else charges.due_now:
            progress = await self._settle_due()
        elif due.due_now:
            progress = await self._follow_up_due()
        else:
            charges_seconds = (
                charges.next_in_flight_due_seconds if self._is_held else charges.next_due_seconds
            )
            times = [seconds for seconds in (charges_seconds, due.next_due_seconds) if seconds is not None]
            return max(min([*times, TIMINGS[self._request.timing].follow_up_poll_max]), 0.1)
        if progress.halted is not None:
            return self._poll_max
        return 0.0 if progress.settled or progress.deferred else min(IDLE_SECONDS, self._poll_max)

    async def _probe(self, due: FollowUpsDue) -> float:
        """Leave Stripe alone for a while; then close a breaker that may close by itself."""
        if self._state.probes and due.charges.in_flight:
            await self._settle_while_held()
            return 0.0
        await self._wait(self._poll_max, self._wakes_before_probe)
        self._wakes_before_probe = self._wakes
        if self._state.probes and self._is_held:
            await self._close_breaker("nothing is in flight to ask about: what is due is tried")
        return 0.0

    async def _read_follow_ups_due(self) -> FollowUpsDue:
        async with self._deciding:
            due = await workflow.execute_activity_method(
                FollowUpActivities.read_follow_ups_due,
                self._key,
                start_to_close_timeout=ledger(self._request.timing),
                retry_policy=self._retry,
            )
            stands = due.charges
            self._take_hold(stands.hold, stands.hold_reason, canceling=stands.canceling)
            return due

    async def _follow_up_due(self) -> FollowedUp:
        done: FollowedUp = await workflow.execute_activity_method(
            FollowUpActivities.follow_up_due,
            self._key,
            start_to_close_timeout=SLICE_SECONDS,
            heartbeat_timeout=heartbeat(self._request.timing),
            retry_policy=self._retry,
        )
        if done.notifications:
            await start_notifications(self._key, self._request.timing)
        await self._take_progress("follow up", done)
        return done
