"""What delivering notifications asks of the outside world. Destinations go by names, never by addresses."""

from abc import ABC, abstractmethod

from temporalio import activity

from workflows.contracts import Message, RunKey, Timing


class DeliveryRequest(Message):
    """Deliver what waits to be told about a run."""

    run: RunKey
    timing: Timing = Timing.PRODUCTION


class Claim(Message):
    """Who takes what waits: `deliverer` is a workflow's id."""

    run: RunKey
    deliverer: str


class Waiting(Message):
    """One notification for one destination."""

    notification_id: int
    destination: str


class Claimed(Message):
    """What was taken: a few events of a run, times a few destinations."""

    waiting: tuple[Waiting, ...] = ()


class DeliveryReport(Message):
    """How many notifications were delivered, and how many given up."""

    delivered: int = 0
    given_up: int = 0


class NotificationActivities(ABC):
    """The outbox and the ways out of it."""

    @abstractmethod
    @activity.defn(name="claim_notifications")
    async def claim_notifications(self, claim: Claim) -> Claimed:
        """Take what waits for somebody to deliver it. Idempotent for one deliverer."""

    @abstractmethod
    @activity.defn(name="deliver_notification")
    async def deliver_notification(self, waiting: Waiting) -> None:
        """Try once, with a row in the journal before and after. Raises where it was not taken."""

    @abstractmethod
    @activity.defn(name="give_up_notification")
    async def give_up_notification(self, waiting: Waiting) -> None:
        """Mark it given up, with an alarm among the run's events."""
