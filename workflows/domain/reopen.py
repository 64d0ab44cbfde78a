"""A charge that ended without success is to be charged again: which step comes first, and not before when.

Decisions only. `activities.reopen` reads the history, asks here, and carries the step out under guards.

**Theory of operation.** Whoever charges again, a later run that took the charge over or a retry of the
same run, finds it with its key versions and its PaymentIntent as they were. One PaymentIntent can succeed
at most once, so for as long as it can succeed the charge stays with it, and the next confirm of that very
PaymentIntent is the only way to money. Where that is not wanted any more, since the body has to be
another one, the PaymentIntent is canceled first; Stripe's answer decides whether it is (trace T1), and
only one that Stripe has shown to be canceled makes way for another (invariant I11). Every new version
waits for the window of the newest key, and for a lookup after that (I4). Confirm versions go on across
PaymentIntents, so a new create waits for the newest confirm key as well: its PaymentIntent could not be
confirmed before.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from workflows.domain.answer import Lookup, PaymentIntent
from workflows.domain.charge import Charge
from workflows.domain.errors import invariant
from workflows.domain.recovery import (
    CANCELED_STATUS,
    PAID_STATUSES,
    CancelFirst,
    Finding,
    NotSettled,
    Settled,
    settled_by_payment,
)
from workflows.domain.states import State
from workflows.domain.verdict import CONCLUSIVE_STATUSES
from workflows.domain.window import WINDOW_SECONDS, Permission, Ruling, rule

CONFIRMABLE_STATUSES = frozenset({"requires_confirmation", "requires_payment_method"})


class FirstStep(StrEnum):
    """What is done first."""

    CREATE = "create"  # nothing was ever sent: version 1
    CREATE_AGAIN = "create_again"  # list by identity, then the next version
    CONFIRM_AGAIN = "confirm_again"  # retrieve, then the next version on the same PaymentIntent
    CANCEL = "cancel"  # the PaymentIntent is of another body: it has to go first


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHistory:
    """What the ledger knows of a charge's keys. Times are epoch seconds by the ledger's clock.

    `payment_intent_canceled` says that Stripe showed that very PaymentIntent canceled; `must_cancel` that it
    must not be paid any more: the plan now wants another amount, currency or description, or it is a leftover
    of an earlier version.
    """

    create_version: int
    payment_intent: str | None
    payment_intent_canceled: bool
    must_cancel: bool
    newest_create_epoch_seconds: float | None
    newest_confirm_epoch_seconds: float | None


@dataclass(frozen=True, slots=True)
class Reopening:
    """The first step, and the window that it waits for: the age of its newest key is counted from there."""

    step: FirstStep
    newest_key_epoch_seconds: float | None
    reason: str

    @property
    def not_before_epoch_seconds(self) -> float:
        """When the window has passed that the step waits for; 0 where it waits for none."""
        newest = self.newest_key_epoch_seconds
        return 0.0 if newest is None else newest + WINDOW_SECONDS


def decide_first_step(history: KeyHistory) -> Reopening:
    """Return what comes first for a charge that is planned again."""
    if history.create_version == 0:
        invariant(history.payment_intent is None, "a PaymentIntent has a create key")
        return Reopening(FirstStep.CREATE, None, "nothing was ever sent for it")
    if history.payment_intent is None or history.payment_intent_canceled:
        reason = (
            "it has no PaymentIntent" if history.payment_intent is None else "its PaymentIntent is canceled"
        )
        newest = [history.newest_create_epoch_seconds, history.newest_confirm_epoch_seconds]
        return Reopening(
            FirstStep.CREATE_AGAIN, max((at for at in newest if at is not None), default=None), reason
        )
    if history.must_cancel:
        return Reopening(FirstStep.CANCEL, None, "its PaymentIntent is not what is wanted any more")
    return Reopening(
        FirstStep.CONFIRM_AGAIN,
        history.newest_confirm_epoch_seconds,
        "it goes on with the PaymentIntent that it has",
    )


def find_still_confirmable(lookup: Lookup, charge: Charge, *, was_handed_over: bool) -> Finding:
    """Return what the charge's own PaymentIntent means for a charge that is to be confirmed again on it.

    A `requires_action` that nobody of ours asked for shows a customer who is about to pay: it is left to
    them. Where the charge had been handed to the customer, who never came, it is no news (`was_handed_over`).
    """
    found = [intent for intent in lookup.payment_intents if intent.id == charge.payment_intent]
    if not found:
        return NotSettled("the PaymentIntent was not found, which is no evidence")
    intent = found[0]
    if intent.status in CONCLUSIVE_STATUSES:
        return Settled(CONCLUSIVE_STATUSES[intent.status], intent, f"Stripe says {intent.status}")
    got = (intent.amount_minor, intent.currency, intent.customer)
    if got != (charge.amount_minor, charge.currency, charge.customer):
        return Settled(State.REVIEW, intent, f"{intent.id} is of {got}, and not what it was created as")
    if intent.status in CONFIRMABLE_STATUSES or (intent.status == "requires_action" and was_handed_over):
        return NotSettled("still confirmable")
    if intent.status == "requires_action":
        return Settled(State.NEEDS_CUSTOMER, intent, "a customer is about to pay it")
    return Settled(State.REVIEW, intent, f"unexpected status {intent.status}")


def find_before_create(lookup: Lookup, *, charge_id: str) -> Finding:
    """Return what a list of the customer's PaymentIntents means before a new create (invariant I11).

    Anything of the identity that is paid or processing settles the charge; anything else that is not canceled
    has to be canceled first, even if it came of an earlier version's late answer (trace T5).
    """
    ours = [intent for intent in lookup.payment_intents if intent.charge_id == charge_id]
    paid = [intent for intent in ours if intent.status in PAID_STATUSES]
    if paid:
        return settled_by_payment(paid)
    leftovers = _oldest_first(intent for intent in ours if intent.status != CANCELED_STATUS)
    if leftovers:
        return CancelFirst(leftovers, "earlier PaymentIntents of this charge are not canceled yet")
    return NotSettled("every PaymentIntent of the identity is canceled" if ours else "none at Stripe")


def rule_on_next_version(lookup: Lookup, reopening: Reopening) -> Ruling:
    """Return whether the next version may be opened after this lookup (I4), which settled nothing.

    `WAIT` where the lookup proves no absence, was made inside the window, or the clocks are apart.
    """
    newest = reopening.newest_key_epoch_seconds
    age_seconds = WINDOW_SECONDS if newest is None else lookup.started_epoch_seconds - newest
    if age_seconds < WINDOW_SECONDS:
        return Ruling(Permission.WAIT, "inside the window", wait_seconds=WINDOW_SECONDS - age_seconds)
    return rule(
        age_seconds=age_seconds,
        lookup_age_seconds=age_seconds if lookup.complete else None,
        skew_seconds=lookup.skew_seconds,
        stored_failure=False,
    )


def _oldest_first(intents: Iterable[PaymentIntent]) -> tuple[PaymentIntent, ...]:
    return tuple(sorted(intents, key=lambda intent: (intent.created_epoch_seconds, intent.id)))
