"""What a run asks of the outside world about what it waits for over days: retries, customers, debits."""

from abc import ABC, abstractmethod

from temporalio import activity

from workflows.contracts import Due, Message, Progress, RunKey


class FollowUpsPlanned(Message):
    """What is waited for at the end of a run's charging. With nothing, the run may close."""

    retries: int = 0
    customers: int = 0
    debits: int = 0
    notifications: int = 0  # wait for somebody to deliver them

    @property
    def open(self) -> int:
        """How many lines something is waited for with."""
        return self.retries + self.customers + self.debits


class FollowUpsDue(Message):
    """What is waited for and when it can be looked at next, by the ledger's clock.

    Of a held run no retry counts as due, of one that is being canceled everything does. `charges` is what is
    open in the run besides, such as a retry whose answer is not known.
    """

    open: int
    due_now: int
    next_due_seconds: float | None
    next_due_epoch_seconds: float | None = None
    charges: Due


class FollowedUp(Progress):
    """What one look at what is due did: `settled` went on, `deferred` could not and are looked at later."""

    notifications: int = 0  # wait for somebody to deliver them


class FollowUpActivities(ABC):
    """What a run does after its charging, over days."""

    @abstractmethod
    @activity.defn(name="plan_follow_ups")
    async def plan_follow_ups(self, run: RunKey) -> FollowUpsPlanned:
        """Decide by the run's retry policy what is waited for; where something is, close the charging.

        Idempotent. Of a run that is being canceled nothing is waited for.
        """

    @abstractmethod
    @activity.defn(name="read_follow_ups_due")
    async def read_follow_ups_due(self, run: RunKey) -> FollowUpsDue:
        """Say what is waited for and when it can be looked at next."""

    @abstractmethod
    @activity.defn(name="follow_up_due")
    async def follow_up_due(self, run: RunKey) -> FollowedUp:
        """Claim what is due and take it one step on: a retry is sent, a customer or debit is looked up."""
