"""What went back, or is being claimed back: refunds and disputes of a PaymentIntent, as Stripe states them.

They stand beside a charge, never instead of it (invariant I8): one that was refunded in full is succeeded.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")

RETURNS_NOTHING = frozenset({"failed", "canceled"})  # https://docs.stripe.com/refunds#failed-refunds


@dataclass(frozen=True, slots=True)
class Refund:
    """One refund; amounts in the currency's minor unit."""

    refund_id: str
    payment_intent: str
    amount_minor: int
    currency: str
    status: str
    reason: str | None
    failure_reason: str | None
    created_epoch_seconds: int
    request_id: str | None = None
    """The refund request of ours that made it, by its metadata."""

    @property
    def returns_minor(self) -> int:
        """What goes back, or is on its way back; nothing of one that failed or was canceled."""
        return 0 if self.status in RETURNS_NOTHING else self.amount_minor


@dataclass(frozen=True, slots=True)
class Dispute:
    """One dispute or inquiry; `due_epoch_seconds` is until when evidence is taken."""

    dispute_id: str
    payment_intent: str
    amount_minor: int
    currency: str
    status: str
    reason: str | None
    due_epoch_seconds: int | None
    created_epoch_seconds: int


@dataclass(frozen=True, slots=True)
class Found(Generic[Item]):
    """A list as far as it could be read. With a `failure` it is not all of it, and concludes nothing."""

    items: tuple[Item, ...]
    request_ids: tuple[str, ...] = ()
    failure: str | None = None
    stripe_epoch_seconds: float | None = None  # the newest answer's clock, one-second grain
