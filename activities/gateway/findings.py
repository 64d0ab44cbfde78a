"""What the gateway's questions answer, as plain values."""

from dataclasses import dataclass
from enum import StrEnum

from workflows.domain.answer import PaymentIntent
from workflows.domain.money_back import Refund
from workflows.domain.webhook_event import WebhookEvent


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, newest first.

    `complete` is False where the request failed or an item could not be read; the list ends with such a page.
    """

    payment_intents: tuple[PaymentIntent, ...]
    complete: bool
    has_more: bool
    request_id: str | None = None
    stripe_epoch_seconds: float | None = None
    failure: str | None = None
    rate_limited: bool = False
    rate_limited_reason: str | None = None
    retry_after_seconds: float | None = None
    refusal: str | None = None  # the code by which the credentials were refused, where they were


@dataclass(frozen=True, slots=True)
class RefundPage:
    """One page of an account's refunds, newest first; incomplete as a `Page` is."""

    refunds: tuple[Refund, ...]
    complete: bool
    has_more: bool
    failure: str | None = None
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class EventPage:
    """One page of an account's events, newest first; incomplete as a `Page` is."""

    events: tuple[WebhookEvent, ...]
    complete: bool
    has_more: bool
    failure: str | None = None
    retry_after_seconds: float | None = None


class PaymentMethodKind(StrEnum):
    """What a search for a customer's payment method can end with."""

    DEFAULT = "default"  # the customer's invoice default
    ONLY_CARD = "only_card"  # no default, and exactly one card is attached
    ATTACHED = "attached"  # the one that was asked about, and the customer has it
    NONE = "none"
    SEVERAL = "several"  # a choice between cards is not ours to make
    CUSTOMER_DELETED = "customer_deleted"
    CUSTOMER_MISSING = "customer_missing"
    REFUSED = "refused"  # the question about this customer is a wrong one, and is so the next time as well
    UNKNOWN = "unknown"  # Stripe did not answer: ask again


@dataclass(frozen=True, slots=True)
class PaymentMethodFinding:
    """How a customer can be charged. `payment_method` is set exactly for DEFAULT, ONLY_CARD and ATTACHED.

    The last four say what to do about UNKNOWN: whether it was a 429, what the answer said about it, and the
    code by which the credentials were refused, where they were.
    """

    kind: PaymentMethodKind
    payment_method: str | None
    reason: str
    rate_limited: bool = False
    rate_limited_reason: str | None = None
    retry_after_seconds: float | None = None
    refusal: str | None = None
