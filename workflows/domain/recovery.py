"""What a lookup means for a charge in flight: settle it, adopt a PaymentIntent, or leave it to the window.

Decisions only. `activities.settle` makes the lookup, asks here, and applies the answer under guards.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from workflows.domain.answer import Lookup, PaymentIntent
from workflows.domain.keys import Operation
from workflows.domain.states import State
from workflows.domain.verdict import CONCLUSIVE_STATUSES, Proof, judge_status

PAID_STATUSES = frozenset({"succeeded", "processing"})
CANCELED_STATUS = "canceled"


@dataclass(frozen=True, slots=True)
class Settled:
    """Stripe's books settle the charge: `state`, by this PaymentIntent."""

    state: State
    payment_intent: PaymentIntent
    reason: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """The create did happen: this unconfirmed PaymentIntent is the charge's own."""

    payment_intent: PaymentIntent
    reason: str


@dataclass(frozen=True, slots=True)
class CancelFirst:
    """Before a new create, these leftovers of the identity must be canceled (invariant I11)."""

    payment_intents: tuple[PaymentIntent, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class NotSettled:
    """The lookup decides nothing; the window rule says what may be done."""

    reason: str


Finding = Settled | Adopt | CancelFirst | NotSettled


@dataclass(frozen=True, slots=True)
class ExpectedIntent:
    """The frozen parameters that a PaymentIntent must carry to be adopted as ours."""

    charge_id: str
    create_key: str
    amount_minor: int
    currency: str
    customer: str


def find_created(
    lookup: Lookup, expected: ExpectedIntent, *, cancel_intended: Collection[str], window_passed: bool
) -> Finding:
    """Return what a list of the customer's PaymentIntents means for a charge in `creating`.

    One of this identity that is paid or processing outranks all others; otherwise only the one whose
    create key and frozen parameters equal the current version's may be adopted (trace T5), and not if a
    cancel of it was ever intended. Several paid ones are a duplicate that people must see.
    """
    ours = [intent for intent in lookup.payment_intents if intent.charge_id == expected.charge_id]
    paid = [intent for intent in ours if intent.status in PAID_STATUSES]
    if paid:
        return settled_by_payment(paid)
    current = [intent for intent in ours if may_adopt(intent, expected, cancel_intended)]
    if current:
        return Adopt(current[0], "found by identity, create key and frozen parameters")
    leftovers = tuple(intent for intent in ours if intent.status != CANCELED_STATUS)
    if leftovers and window_passed and lookup.complete:
        return CancelFirst(leftovers, "earlier PaymentIntents of this charge are not canceled yet")
    return NotSettled("no PaymentIntent of this version at Stripe")


def settled_by_payment(paid: Sequence[PaymentIntent]) -> Settled:
    """Return what paid or processing PaymentIntents of one identity, at least one, settle."""
    first = min(
        paid, key=lambda intent: (intent.status != "succeeded", intent.created_epoch_seconds, intent.id)
    )
    reason = "found paid at Stripe"
    if len(paid) > 1:
        reason = f"DUPLICATE: {len(paid)} PaymentIntents of this charge are paid or processing"
    return Settled(CONCLUSIVE_STATUSES[first.status], first, reason)


def may_adopt(intent: PaymentIntent, expected: ExpectedIntent, cancel_intended: Collection[str]) -> bool:
    """Return whether an unpaid PaymentIntent is what a version's create made, and nobody ever canceled it."""
    return (
        intent.create_key == expected.create_key
        and intent.amount_minor == expected.amount_minor
        and intent.currency == expected.currency
        and intent.customer == expected.customer
        and intent.status != CANCELED_STATUS
        and intent.id not in cancel_intended
    )


def find_confirmed(
    lookup: Lookup,
    *,
    payment_intent_id: str,
    latest_charge_before: str | None,
    window_passed: bool,
    key_answered: bool,
) -> Finding:
    """Return what the row's own PaymentIntent means for a charge in `confirming`.

    `requires_*` decides nothing while a send of the newest key may still be running (invariant I14): it
    counts only once the window has passed, or after Stripe has replayed that key's answer
    (`key_answered`): a replay proves that the key has run, and that it did not end in a success. Without
    one, a decline is this confirm's only if its failed charge is newer than `latest_charge_before`, the one
    stored with the intent (traces T8, T9).
    """
    found = [intent for intent in lookup.payment_intents if intent.id == payment_intent_id]
    if not found:
        return NotSettled("the PaymentIntent was not found, which is no evidence")
    intent = found[0]
    if intent.status in CONCLUSIVE_STATUSES:
        return Settled(CONCLUSIVE_STATUSES[intent.status], intent, f"Stripe says {intent.status}")
    if not (window_passed or key_answered):
        return NotSettled(f"{intent.status} decides nothing while the confirm may be running")
    declined_before = (
        intent.status == "requires_payment_method" and intent.latest_charge == latest_charge_before
    )
    if declined_before and not key_answered:
        return NotSettled("still confirmable, and no newer failed charge")
    verdict = judge_status(Operation.CONFIRM, intent)
    if verdict.proof is Proof.PROVED and verdict.state is not None:
        return Settled(verdict.state, intent, verdict.reason)
    return NotSettled("still confirmable")


def find_canceled(lookup: Lookup, *, payment_intent_id: str) -> Finding:
    """Return what the PaymentIntent means for a charge in `canceling`: its status decides (trace T1)."""
    for intent in lookup.payment_intents:
        if intent.id == payment_intent_id and intent.status in CONCLUSIVE_STATUSES:
            return Settled(CONCLUSIVE_STATUSES[intent.status], intent, f"Stripe says {intent.status}")
    return NotSettled("not canceled yet")
