"""What the simulator remembers of each Stripe object: only what varies. `shapes` fills in the rest."""

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, Self


class Record:
    """An object that goes into the log as the list of its fields."""

    __slots__ = ()

    def to_values(self) -> tuple[Any, ...]:
        """Return the fields in the order of their declaration."""
        return _GETTERS[type(self)](self)

    def take_values(self, other: Self) -> None:
        """Become a copy of the other, keeping identity, so that every index still points here."""
        for name in _NAMES[type(self)]:
            setattr(self, name, getattr(other, name))


@dataclass(slots=True)
class Customer(Record):
    """A customer; `default_payment_method` is the one of its invoice settings."""

    id: str
    seq: int
    created: int
    metadata: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    default_payment_method: str | None = None
    hashes: dict[str, Any] | None = None
    deleted: bool = False


@dataclass(slots=True)
class PaymentMethod(Record):
    """A payment method; `documented_id` names its behaviour, `confirms` counts the attempts to pay."""

    id: str
    seq: int
    created: int
    documented_id: str | None = None
    customer: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    confirms: int = 0
    billing: dict[str, Any] | None = None
    card: dict[str, Any] | None = None
    detached: bool = False


@dataclass(slots=True)
class PaymentIntent(Record):
    """A payment; it can succeed once.

    `settle_at` is when a bank debit is decided or an authorization lapses, by the sim's clock. `hashes` are
    the nested parameters that come back as they were given.
    """

    id: str
    seq: int
    created: int
    amount: int
    currency: str
    status: str
    client_secret: str
    customer: str | None = None
    payment_method: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] | None = None
    capture_method: str = "automatic"
    confirmation_method: str = "automatic"
    payment_method_types: list[str] | None = None
    last_payment_error: dict[str, Any] | None = None
    charges: list[str] = field(default_factory=list)
    next_action: dict[str, Any] | None = None
    canceled_at: int | None = None
    cancellation_reason: str | None = None
    settle_at: float | None = None
    confirms: int = 0
    received: int | None = None
    hashes: dict[str, Any] | None = None


@dataclass(slots=True)
class Charge(Record):
    """One attempt to move money; its metadata is a snapshot of the PaymentIntent's.

    `settle_at` is when a dispute arrives. `released` is what an authorization gave back uncaptured.
    """

    id: str
    seq: int
    created: int
    amount: int
    currency: str
    status: str
    payment_intent: str
    payment_method: str
    customer: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    captured: bool = True
    failure: dict[str, Any] | None = None
    description: str | None = None
    texts: dict[str, str] | None = None
    amount_captured: int | None = None
    amount_refunded: int = 0
    refunds: list[str] | None = None
    transaction: str | None = None
    dispute: str | None = None
    settle_at: float | None = None
    hashes: dict[str, Any] | None = None


@dataclass(slots=True)
class Refund(Record):
    """Money on its way back; `settle_at` is when its present status changes by itself, to `settles_as`."""

    id: str
    seq: int
    created: int
    amount: int
    currency: str
    status: str
    charge: str
    payment_intent: str
    customer: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    reason: str | None = None
    transaction: str | None = None
    failure_transaction: str | None = None
    failure_reason: str | None = None
    settle_at: float | None = None
    settles_as: str | None = None
    kind: str = "card"


@dataclass(slots=True)
class Dispute(Record):
    """A customer's bank asks for the money back; `settle_at` is when the time to answer is over."""

    id: str
    seq: int
    created: int
    amount: int
    currency: str
    status: str
    charge: str
    payment_intent: str
    reason: str
    due_by: int
    brand: str = "visa"
    metadata: dict[str, str] = field(default_factory=dict)
    evidence: dict[str, str] = field(default_factory=dict)
    transactions: list[str] = field(default_factory=list)
    submissions: int = 0
    settle_at: float | None = None


@dataclass(slots=True)
class WebhookEndpoint(Record):
    """Where events are sent; `secrets` are (secret, good until or None), newest first."""

    id: str
    seq: int
    created: int
    url: str
    enabled_events: list[str]
    secrets: list[tuple[str, float | None]]
    metadata: dict[str, str] = field(default_factory=dict)
    description: str | None = None
    api_version: str | None = None
    connect: bool = False
    disabled: bool = False
    deleted: bool = False


@dataclass(slots=True)
class Deferred(Record):
    """A request that is executed later, at `settle_at`; `request` is its ordinal.

    `holds` is what its key knows of it as long as it is in use, or None when the key has an answer already.
    """

    id: str
    seq: int
    created: int
    method: str
    path: str
    form: str
    key: str | None
    request: int
    request_id: str
    holds: list[Any] | None
    settle_at: float | None


KINDS: Final[dict[str, type[Record]]] = {
    "customer": Customer,
    "payment_method": PaymentMethod,
    "payment_intent": PaymentIntent,
    "charge": Charge,
    "refund": Refund,
    "dispute": Dispute,
    "webhook_endpoint": WebhookEndpoint,
    "deferred": Deferred,
}
KIND_NAMES: Final[dict[type[Record], str]] = {kind: name for name, kind in KINDS.items()}
_NAMES: Final[dict[type, tuple[str, ...]]] = {
    kind: tuple(kind.__dataclass_fields__)  # type: ignore[attr-defined]  # every kind is a dataclass
    for kind in KINDS.values()
}
_GETTERS: Final[dict[type, Callable[[Any], tuple[Any, ...]]]] = {
    kind: attrgetter(*names) for kind, names in _NAMES.items()
}
