"""What is sent to Stripe for each operation: a path and JSON-able parameters, made by pure functions.

They are frozen in the ledger with their key and resent as stored (invariant I3), so a change here reaches new
keys only.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from workflows.domain.answer import (
    METADATA_CHARGE,
    METADATA_CREATE_KEY,
    METADATA_LINE,
    METADATA_PERIOD,
    METADATA_REFUND,
    METADATA_RUN,
)
from workflows.domain.errors import InvalidInput, invariant
from workflows.domain.keys import ChargeId, IdempotencyKey

PAYMENT_INTENTS_PATH = "/v1/payment_intents"
REFUNDS_PATH = "/v1/refunds"
METADATA_VALUE_LENGTH_MAX = 500  # https://docs.stripe.com/metadata
DESCRIPTION_LENGTH_MAX = 500

_ACCOUNT_ID = re.compile(r"[A-Za-z0-9_]{1,255}")
_OBJECT_ID = re.compile(r"[A-Za-z0-9_]{1,255}")


@dataclass(frozen=True, slots=True)
class StripeAccount:
    """Whose money is meant. Part of every call: a lookup under the wrong account proves nothing.

    `connected` says whether the account is reached through a platform's key, by the `Stripe-Account` header.
    """

    id: str
    connected: bool

    def __post_init__(self) -> None:
        """Refuse ids that can't be a header's value."""
        invariant(_ACCOUNT_ID.fullmatch(self.id), f"not an account id: {self.id[:40]!a}")


@dataclass(frozen=True, slots=True)
class Request:
    """One request's path and parameters, as they are frozen."""

    path: str
    parameters: Mapping[str, object]


def create_request(
    *,
    amount_minor: int,
    currency: str,
    customer: str,
    payment_method: str,
    charge_id: ChargeId,
    create_key: IdempotencyKey,
    period: str,
    line: str,
    run: str,
    description: str | None = None,
) -> Request:
    """Return the request that makes an unconfirmed PaymentIntent, which moves no money.

    `payment_method_types` is left out and redirects are switched off. A fixed list of types is refused as
    soon as one of them does not fit the currency, a list of `card` alone shuts out bank debits, and Stripe's
    default (automatic methods, redirects allowed) refuses a confirm without `return_url` even for saved cards
    and debits. With `allow_redirects=never` both confirm off session, without an URL that nobody would visit.

    Args:
        amount_minor: The amount in the currency's minor unit as Stripe counts it, at least 1.
        currency: Three lower-case letters.
        customer: Stripe's `cus_...`.
        payment_method: The saved `pm_...` (or older `card_...`, `src_...`), attached to the customer.
        charge_id: The charge's identity.
        create_key: This operation's own key, which tells the versions of a charge apart in a list.
        period: The period's label.
        line: The line's name.
        run: The id of the run that sends it.
        description: What the customer may read, at most 500 characters.

    Raises:
        InvalidInput: The amount, the currency or the length of a text can't be sent.
    """
    if isinstance(amount_minor, bool) or amount_minor < 1:
        raise InvalidInput(f"amount_minor must be at least 1, not {amount_minor}")
    if not re.fullmatch(r"[a-z]{3}", currency):
        raise InvalidInput(f"currency must be three lower-case letters, not {currency[:10]!a}")
    metadata = {
        METADATA_CHARGE: str(charge_id),
        METADATA_CREATE_KEY: str(create_key),
        METADATA_PERIOD: period,
        METADATA_LINE: line,
        METADATA_RUN: run,
    }
    for name, value in metadata.items():
        if not 1 <= len(value) <= METADATA_VALUE_LENGTH_MAX:
            raise InvalidInput(f"{name} must have 1 to {METADATA_VALUE_LENGTH_MAX} characters")
    parameters: dict[str, object] = {
        "amount": amount_minor,
        "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
        "currency": currency,
        "customer": customer,
        "metadata": metadata,
        "payment_method": payment_method,
    }
    if description:
        if len(description) > DESCRIPTION_LENGTH_MAX:
            raise InvalidInput(f"the description is longer than {DESCRIPTION_LENGTH_MAX} characters")
        parameters["description"] = description
    return Request(PAYMENT_INTENTS_PATH, parameters)


def confirm_request(payment_intent_id: str, payment_method: str) -> Request:
    """Return the request that moves the money.

    The payment method is named again, since Stripe takes it off a PaymentIntent that was declined.
    """
    parameters = {"off_session": True, "payment_method": payment_method}
    return Request(f"{payment_intent_path(payment_intent_id)}/confirm", parameters)


def cancel_request(payment_intent_id: str) -> Request:
    """Return the request after which a PaymentIntent can never succeed."""
    return Request(f"{payment_intent_path(payment_intent_id)}/cancel", {"cancellation_reason": "abandoned"})


def refund_request(
    payment_intent_id: str, *, amount_minor: int, kind: str, request_id: str, charge_id: str
) -> Request:
    """Return the request that gives money back. `kind` is one of Stripe's reasons."""
    parameters = {
        "amount": amount_minor,
        "metadata": {METADATA_REFUND: request_id, METADATA_CHARGE: charge_id},
        "payment_intent": _checked_id(payment_intent_id),
        "reason": kind,
    }
    return Request(REFUNDS_PATH, parameters)


def payment_intent_path(payment_intent_id: str) -> str:
    """Return the path of one PaymentIntent; ids that would lead to another path are refused."""
    return f"{PAYMENT_INTENTS_PATH}/{_checked_id(payment_intent_id)}"


def customer_path(customer: str) -> str:
    """Return the path of one customer; its id comes from outside, so it is escaped and not refused.

    Custom ids may have any characters, and whatever is not a letter, a digit or one of `_.-~` is escaped: the
    path that leaves is this one, byte for byte.
    """
    return f"/v1/customers/{quote(customer, safe='')}"


def customer_method_path(customer: str, payment_method: str) -> str:
    """Return the path of one payment method of a customer: both ids come from outside and are escaped."""
    return f"{customer_path(customer)}/payment_methods/{quote(payment_method, safe='')}"


def _checked_id(object_id: str) -> str:
    invariant(_OBJECT_ID.fullmatch(object_id), f"not an id of Stripe's: {object_id[:40]!a}")
    return object_id
