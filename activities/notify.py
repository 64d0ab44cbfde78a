"""Deliver notifications: the journal first, then the destination, then the journal."""

from collections.abc import Mapping, Sequence

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.ledger.notifications import NotificationLedger
from activities.notifiers.destination import Destination, NotDelivered
from workflows import notify_contracts as contracts
from workflows.notify_contracts import Claim, Claimed, Waiting


class NotificationActivities(contracts.NotificationActivities):
    """The outbox of this process's ledger, and the destinations of its environment."""

    def __init__(self, *, ledger: NotificationLedger, destinations: Sequence[Destination]) -> None:
        self._ledger = ledger
        self._destinations: Mapping[str, Destination] = {one.name: one for one in destinations}

    @activity.defn(name="claim_notifications")
    async def claim_notifications(self, claim: Claim) -> Claimed:
        """Take what waits for somebody to deliver it."""
        rows = await self._ledger.claim(claim.run.run_id, claim.deliverer)
        return Claimed(waiting=tuple(Waiting(notification_id=row[0], destination=row[1]) for row in rows))

    @activity.defn(name="deliver_notification")
    async def deliver_notification(self, waiting: Waiting) -> None:
        """Try once.

        Raises:
            ApplicationError: It was not taken. It says nothing of the address: histories keep it.
        """
        one_try = await self._ledger.begin(waiting.notification_id)
        if one_try is None:
            return
        try:
            answer = await self._destination(one_try.destination).deliver(one_try.payload)
        except NotDelivered as failure:
            await self._ledger.end(one_try, delivered=False, detail=str(failure))
            # A receiver that is down is its owner's business: no stack trace in this worker's log.
            raise ApplicationError(
                f"{one_try.destination}: {failure}",
                type="NotDelivered",
                category=ApplicationErrorCategory.BENIGN,
            ) from None
        await self._ledger.end(one_try, delivered=True, detail=answer)

    def _destination(self, name: str) -> Destination:
        if name not in self._destinations:
            raise NotDelivered("this worker knows no such destination")
        return self._destinations[name]

    @activity.defn(name="give_up_notification")
    async def give_up_notification(self, waiting: Waiting) -> None:
        """Mark it given up, with an alarm among the run's events."""
        await self._ledger.give_up(waiting.notification_id)
