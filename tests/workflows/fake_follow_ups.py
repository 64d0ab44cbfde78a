"""The contract of what a run does over days, over the fakes' memory."""

from collections.abc import Callable, Sequence
from typing import Any

from temporalio import activity

from tests.workflows.fake_ledger import FakeLedger
from workflows import follow_up_contracts as contracts
from workflows.contracts import Due, RunKey
from workflows.follow_up_contracts import FollowedUp, FollowUpsDue, FollowUpsPlanned


class FakeFollowUpActivities(contracts.FollowUpActivities):
    """Waits for what the test says, at the times that it says, by the ledger's clock."""

    def __init__(self, ledger: FakeLedger, read_due: Callable[[RunKey], Any]) -> None:
        self._ledger = ledger
        self._read_due = read_due

    @activity.defn(name="plan_follow_ups")
    async def plan_follow_ups(self, run: RunKey) -> FollowUpsPlanned:  # noqa: ARG002 - the contract
        """Close the charging where something is waited for."""
        ledger = self._ledger
        if ledger.waits and not ledger.canceling:
            ledger.phase = "retrying"
        await ledger.note("plan_follow_ups")
        return FollowUpsPlanned(retries=0 if ledger.canceling else len(ledger.waits))

    @activity.defn(name="read_follow_ups_due")
    async def read_follow_ups_due(self, run: RunKey) -> FollowUpsDue:
        """Say what is waited for, as it is at the moment of asking."""
        charges: Due = await self._read_due(run)
        ledger, now = self._ledger, self._ledger.clock()
        held = ledger.hold is not None
        times = [] if held else [wait[0] for wait in ledger.waits]
        next_due = min(times, default=None)
        await ledger.note("read_follow_ups_due")
        return FollowUpsDue(
            open=len(ledger.waits),
            due_now=len(ledger.waits) if ledger.canceling else sum(due <= now for due in times),
            next_due_seconds=None if next_due is None else next_due - now,
            next_due_epoch_seconds=next_due,
            charges=charges,
        )

    @activity.defn(name="follow_up_due")
    async def follow_up_due(self, run: RunKey) -> FollowedUp:  # noqa: ARG002 - the contract
        """Take what is due one step on; what has no step left ends."""
        ledger, now = self._ledger, self._ledger.clock()
        await ledger.note("follow_up_due")
        if ledger.follow_up_halts:
            return ledger.follow_up_halts.pop(0)
        due = [wait for wait in ledger.waits if ledger.canceling or wait[0] <= now]
        for wait in due:
            ledger.followed_up_at.append(wait.pop(0))
        if ledger.canceling:
            ledger.waits.clear()
        ledger.waits[:] = [wait for wait in ledger.waits if wait]
        await ledger.tell()
        return FollowedUp(settled=len(due))


def fake_follow_up_activities(
    ledger: FakeLedger, read_due: Callable[[RunKey], Any]
) -> Sequence[Callable[..., Any]]:
    """Return every activity of the contract, over `ledger`, for a worker."""
    follow_ups = FakeFollowUpActivities(ledger, read_due)
    return [
        follow_ups.plan_follow_ups,
        follow_ups.read_follow_ups_due,
        follow_ups.follow_up_due,
    ]
