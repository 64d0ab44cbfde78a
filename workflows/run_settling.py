"""What keeps a run's books moving: settling what is due, while the run goes on and while it is held."""

from temporalio import workflow

from workflows.run_control import RunControl

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import ChargeActivities, HoldKind, Progress, RunInput, Settling
    from workflows.control_contracts import ControlActivities
    from workflows.policies import IDLE_SECONDS, SLICE_SECONDS, heartbeat


class RunSettling(RunControl):
    """Settles what is open in a run, and closes a breaker that may close by itself."""

    def __init__(self, run: RunInput) -> None:
        super().__init__(run)
        self._is_on_probation = False  # a breaker has closed by itself, and nothing was charged since

    async def _settle(self) -> None:
        """Settle what is open, as it becomes due, until nothing is. This may take days."""
        while True:
            if self._should_continue_as_new():
                await self._continue_as_new()
            if self._is_held:
                open_charges = await self._settle_while_held()
            else:
                open_charges = await self._settle_what_is_due()
            if open_charges == 0:
                self._waiting_until = None
                return

    async def _settle_what_is_due(self) -> int:
        """Carry on whatever is due, or wait until something is; return how many charges were open before."""
        wakes_seen = self._wakes
        due = await self._read_due()
        if due.open == 0 or self._is_held:
            return due.open
        if not due.due_now:
            self._waiting_until = due.next_due_epoch_seconds
            await self._wait(min(due.next_due_seconds or 0.0, self._poll_max), wakes_seen)
            return due.open
        progress = await self._settle_due()
        if progress.halted is not None and not self._is_held:
            await self._wait(self._poll_max, wakes_seen)
        elif not progress.settled and not progress.deferred:
            await self._wait(min(IDLE_SECONDS, self._poll_max), wakes_seen)
        return due.open

    async def _settle_while_held(self) -> int:
        """Settle what is in flight and due, then wait; return how many charges were open before.

        Where a breaker holds the run the wait comes first: there is a reason to leave Stripe alone for now.
        """
        wakes_seen = self._wakes
        if self._state.hold is HoldKind.BREAKER:
            await self._wait(self._poll_max, self._wakes_before_probe)
            self._wakes_before_probe = self._wakes
        due = await self._read_due()
        if due.open == 0 or not self._is_held:
            return due.open
        pause_seconds = due.next_in_flight_due_seconds or self._poll_max
        if due.in_flight_due_now:
            progress = await self._settle_due()
            pause_seconds = self._poll_max if progress.halted is not None else IDLE_SECONDS
            if progress.settled or progress.deferred:
                pause_seconds = 0.0
            if self._state.probes and progress.halted is None:
                after = await self._read_due()
                if after.in_flight < due.in_flight:
                    await self._close_breaker("Stripe answers again")
        elif self._state.probes and due.in_flight == 0:
            await self._close_breaker("nothing is in flight to ask about: one slice is tried")
        if pause_seconds and self._state.hold not in {None, HoldKind.BREAKER}:
            await self._wait(min(pause_seconds, self._poll_max), wakes_seen)
        return due.open

    async def _close_breaker(self, reason: str) -> None:
        """Go on by itself, with one slice at a time until one has gone well."""
        await self._rule(ControlActivities.close_breaker, self._by_rule(reason))
        self._is_on_probation = True

    async def _settle_due(self) -> Progress:
        progress = await workflow.execute_activity_method(
            ChargeActivities.settle_due,
            Settling(**dict(self._key), declines_accepted=self._state.declines_accepted),
            start_to_close_timeout=SLICE_SECONDS,
            heartbeat_timeout=heartbeat(self._request.timing),
            retry_policy=self._retry,
        )
        await self._take_progress("settle", progress)
        return progress

    async def _take_progress(self, work: str, progress: Progress) -> None:
        """Count what an activity did, and hold the run where it met something that is to hold it."""
        self._halted.pop(work, None)
        if progress.halted is not None:
            self._halted[work] = progress.halted
        self._update(
            settled=self._state.settled + progress.settled, deferred=self._state.deferred + progress.deferred
        )
        if progress.halted_kind is not None:
            await self._hold_for(progress)
        elif progress.held and not self._has_to_stop:
            await self._read_due()  # it was held a moment ago: is it still?

    @property
    def _has_to_stop(self) -> bool:
        return self._is_held or self._state.canceling or self._should_continue_as_new()
