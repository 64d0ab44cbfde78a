"""Every identity and every idempotency key is derived here, and nowhere else.

Nothing that varies per attempt may enter a key: no clock, attempt counter, random value, host, amount or
payment method (DESIGN.md section 3; public incident I01 shows what an attempt counter does).
"""

import hashlib
import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from workflows.domain.errors import InvalidInput, invariant
from workflows.domain.periods import Period

ChargeId = NewType("ChargeId", str)
IdempotencyKey = NewType("IdempotencyKey", str)
Fingerprint = NewType("Fingerprint", str)

SEPARATOR = "\x1f"
IDENTITY_HEX_DIGITS = 32
KEY_LENGTH_MAX = 255  # Stripe's limit, https://docs.stripe.com/api/idempotent_requests


class Operation(StrEnum):
    """What a request asks of Stripe. Each has keys of its own, since Stripe binds a key to its path."""

    CREATE = "create"
    CONFIRM = "confirm"
    CANCEL = "cancel"
    REFUND = "refund"


@dataclass(frozen=True, slots=True)
class Identity:
    """What is owed: one line of one customer for one period of one account."""

    account: str
    customer: str
    period: str
    line: str

    @classmethod
    def of(cls, account: str, customer: str, period: str, line: str) -> "Identity":
        """Return the canonical identity: stripped, NFC, the period parsed and printed again.

        Raises:
            InvalidInput: A field is empty or holds the separator or another control character.
        """
        return cls(
            account=canonical(account, "account"),
            customer=canonical(customer, "customer"),
            period=str(Period.parse(period)),
            line=canonical(line, "line"),
        )

    @property
    def charge_id(self) -> ChargeId:
        """32 hex digits of SHA-256 over the four fields joined by byte 0x1F."""
        joined = SEPARATOR.join((self.account, self.customer, self.period, self.line))
        return ChargeId(hashlib.sha256(joined.encode()).hexdigest()[:IDENTITY_HEX_DIGITS])


class ChargeIds:
    """Charge ids of one account and period, for whoever makes a million of them: `Identity` in a hurry."""

    def __init__(self, account: str, period: str) -> None:
        """Raises InvalidInput: as `Identity.of`."""
        account, period = canonical(account, "account"), str(Period.parse(period))
        self._account_prefix = f"{account}{SEPARATOR}"
        self._period_infix = f"{SEPARATOR}{period}{SEPARATOR}"

    def of(self, customer: str, line: str) -> ChargeId:
        """Return `Identity.of(account, customer, period, line).charge_id` for fields canonical already.

        Raises:
            InvalidInput: A field is not canonical: what stands in the ledger would not be what was hashed.
        """
        for value, field in ((customer, "customer"), (line, "line")):
            # Printable ASCII without white space is canonical, and nearly all there is.
            if not (value.isascii() and value.isprintable() and value and " " not in value):
                _refuse_other_spelling(value, field)
        joined = f"{self._account_prefix}{customer}{self._period_infix}{line}"
        return ChargeId(hashlib.sha256(joined.encode()).hexdigest()[:IDENTITY_HEX_DIGITS])


def _refuse_other_spelling(value: str, field: str) -> None:
    if canonical(value, field) != value:
        raise InvalidInput(f"{field} is not in its canonical spelling: {value[:40]!a}")


def canonical(value: str, field: str) -> str:
    """Return `value` stripped and in NFC.

    Raises:
        InvalidInput: Nothing is left, or a control character (0x1F above all) is inside: two different
            identities could otherwise share one hash.
    """
    # Looked for before stripping: Python counts 0x1C to 0x1F as white space and would drop them unseen.
    if any(unicodedata.category(character) == "Cc" for character in value):
        raise InvalidInput(f"{field} holds a control character: {value[:40]!a}")
    text = unicodedata.normalize("NFC", value.strip())
    if not text:
        raise InvalidInput(f"{field} is empty")
    return text


def key_for(operation: Operation, subject: str, version: int) -> IdempotencyKey:
    """Return the key of `operation` on `subject` at `version` (from 1).

    The subject is the charge's identity for create and confirm, the PaymentIntent for cancel (a key per
    charge would collide between two PaymentIntents of it, trace T12) and the refund request for refund,
    which has no version: a refund is never re-keyed by itself.
    """
    invariant(version >= 1, f"versions start at 1, not {version}")
    invariant(subject, "a key needs a subject")
    if operation is Operation.REFUND:
        invariant(version == 1, "a refund is never re-keyed")
        key = f"refund_{subject}"
    else:
        key = f"{operation.value}_{subject}_v{version}"
    invariant(len(key) <= KEY_LENGTH_MAX, f"key longer than {KEY_LENGTH_MAX} characters: {key[:40]}…")
    return IdempotencyKey(key)


def canonical_parameters(parameters: Mapping[str, object]) -> str:
    """Return the one JSON text in which parameters are frozen, stored, fingerprinted and resent."""
    return json.dumps(parameters, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint(path: str, parameters_json: str) -> Fingerprint:
    """Return SHA-256 over path and frozen parameters: one key, one body, one path (invariant I3)."""
    return Fingerprint(hashlib.sha256(f"{path}\n{parameters_json}".encode()).hexdigest())
