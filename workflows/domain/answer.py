"""What came back from Stripe, in our own words: the gateway's output and the verdict's input.

Plain values. Nothing here holds an SDK object: those carry the API key when pickled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

METADATA_CHARGE = "chargeonce_charge"
METADATA_CREATE_KEY = "chargeonce_create_key"
METADATA_PERIOD = "chargeonce_period"
METADATA_LINE = "chargeonce_line"
METADATA_RUN = "chargeonce_run"
METADATA_REFUND = "chargeonce_refund"


class Transport(StrEnum):
    """How a request ended below HTTP."""

    ANSWERED = "answered"  # a parseable answer came back
    NOT_SENT = "not_sent"  # connect refused, pool timeout: no byte of the request left
    NO_ANSWER = "no_answer"  # timeout, reset, closed: the request may have been executed
    UNREADABLE = "unreadable"  # a status came back, but no body that can be read


@dataclass(frozen=True, slots=True)
class PaymentIntent:
    """The fields of a PaymentIntent that decisions need, as Stripe stated them at one moment."""

    id: str
    status: str
    amount_minor: int
    currency: str
    created_epoch_seconds: int
    customer: str | None = None
    payment_method: str | None = None
    latest_charge: str | None = None
    last_error_code: str | None = None
    last_decline_code: str | None = None
    last_advice_code: str | None = None
    last_network_advice_code: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def charge_id(self) -> str | None:
        """The identity that the PaymentIntent was made for, or None where it is not ours."""
        return self.metadata.get(METADATA_CHARGE)

    @property
    def create_key(self) -> str | None:
        """The create key written into the PaymentIntent at birth, which tells versions apart."""
        return self.metadata.get(METADATA_CREATE_KEY)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer to one request, or the fact that none came."""

    transport: Transport
    http_status: int | None = None
    payment_intent: PaymentIntent | None = None
    error_type: str | None = None
    code: str | None = None
    decline_code: str | None = None
    advice_code: str | None = None
    network_decline_code: str | None = None
    network_advice_code: str | None = None
    message: str | None = None
    replayed: bool = False
    request_id: str | None = None
    stripe_epoch_seconds: float | None = None  # the Date header, one-second grain
    retry_after_seconds: float | None = None
    rate_limited_reason: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether Stripe answered 2xx with a body that could be read."""
        return (
            self.transport is Transport.ANSWERED
            and self.http_status is not None
            and 200 <= self.http_status < 300
        )


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a GET or list at Stripe showed.

    `complete` is False where any page or request of it failed, or where the answer can't be evidence
    ("not found" may be the wrong account's): then it proves only what it shows, never an absence.
    `started_epoch_seconds` is the ledger's clock before the first request of it went out.
    """

    payment_intents: tuple[PaymentIntent, ...]
    complete: bool
    started_epoch_seconds: float
    skew_seconds: float | None  # ledger's clock minus Stripe's Date; None where no Date came back
    request_ids: tuple[str, ...] = ()
    failure: str | None = None
    refusal: str | None = None  # the code by which the credentials were refused, where they were
