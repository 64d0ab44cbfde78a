"""What the refund workflow asks of the outside world, and the messages that go in and out."""

from abc import ABC, abstractmethod

from temporalio import activity

from workflows.contracts import Message, Timing


class RefundOrder(Message):
    """A request that is in the ledger already, approved by whoever made it."""

    request_id: str
    run_id: str
    account: str
    timing: Timing = Timing.PRODUCTION


class RefundStep(Message):
    """Where a request stands after one step, and for how long nothing helps where it is not at its end."""

    state: str
    reason: str
    refund_id: str | None = None
    status: str | None = None
    wait_seconds: float = 0.0

    @property
    def is_done(self) -> bool:
        """Whether nothing more is to be sent or asked."""
        return self.state in {"made", "refused", "review"}


class RefundActivities(ABC):
    """The ledger's and Stripe's part of a refund."""

    @abstractmethod
    @activity.defn(name="carry_refund")
    async def carry_refund(self, order: RefundOrder) -> RefundStep:
        """Take one step: send it, or find out what an earlier send did. Repeatable at any point."""
