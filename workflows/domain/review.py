"""What people may decide about a charge in review, given what Stripe shows at that moment.

A charge is in review because ledger and Stripe contradict each other in a way that no rule may settle. A
person may, and may only say what Stripe bears out: the ledger alone is no witness against itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from workflows.domain.answer import PaymentIntent
from workflows.domain.charge import Charge
from workflows.domain.recovery import CANCELED_STATUS, PAID_STATUSES
from workflows.domain.states import State
from workflows.domain.verdict import CONCLUSIVE_STATUSES


class Resolution(StrEnum):
    """What a person says that a charge in review is."""

    PAID = "paid"  # by the one PaymentIntent that Stripe shows as paid or on its way
    UNPAID = "unpaid"  # nobody paid, and a later run may charge it again
    CANCELED = "canceled"  # nobody paid, and nobody can by what is at Stripe: what is open there is canceled


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a charge in review: every PaymentIntent of its identity, and what went back of each.

    `may_still_run` says that a create or confirm younger than the window has no answer yet.
    """

    payment_intents: Sequence[PaymentIntent]
    returned_minor: Mapping[str, int]
    may_still_run: bool

    def is_returned(self, intent: PaymentIntent) -> bool:
        """Return whether all of it went back, or is on its way back."""
        return 0 < intent.amount_minor <= self.returned_minor.get(intent.id, 0)

    @property
    def paid(self) -> list[PaymentIntent]:
        """What has the customer's money, or is getting it."""
        return [
            one for one in self.payment_intents if one.status in PAID_STATUSES and not self.is_returned(one)
        ]

    @property
    def open(self) -> list[PaymentIntent]:
        """What could still be paid."""
        dead = PAID_STATUSES | {CANCELED_STATUS}
        return [one for one in self.payment_intents if one.status not in dead]


@dataclass(frozen=True, slots=True)
class Allowed:
    """A resolution that Stripe bears out: the charge becomes `state`, by this PaymentIntent.

    `cancel_first` says that the row's own PaymentIntent can still be paid, and is canceled before anything is
    recorded; what becomes of that decides.
    """

    state: State
    payment_intent: PaymentIntent | None
    cancel_first: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """A resolution that Stripe does not bear out, with the reason and what to do instead."""

    reason: str


Ruling = Allowed | Refused


def rule_on(charge: Charge, resolution: Resolution, evidence: Evidence) -> Ruling:
    """Return whether a person may resolve a charge in review like this, now."""
    if charge.state is not State.REVIEW:
        return Refused(f"the charge is {charge.state}, not in review: nothing is to be decided about it")
    own = next((one for one in evidence.payment_intents if one.id == charge.payment_intent), None)
    if charge.payment_intent is not None and own is None:
        return Refused(
            f"Stripe does not show {charge.payment_intent}, which the ledger names: find out whose it is"
        )
    if resolution is Resolution.PAID:
        return _rule_on_paid(charge, own, evidence)
    if evidence.paid:
        names = ", ".join(f"{one.id} ({one.status})" for one in evidence.paid)
        return Refused(
            f"the customer has paid or is paying by {names}: say paid, or give the money back first with "
            f"chargeonce refund {charge.charge_id} --payment-intent {evidence.paid[0].id}"
        )
    if evidence.may_still_run:
        return Refused("a request of it has no answer and may still run: wait until its window has passed")
    others = [one.id for one in evidence.open if one is not own]
    if others:
        return Refused(
            f"{', '.join(others)} can still be paid, and is not the charge's own: sweep it first with "
            f"chargeonce reconcile --run {charge.run_id} --repair"
        )
    if resolution is Resolution.CANCELED:
        return Allowed(State.CANCELED, own, cancel_first=own is not None and own in evidence.open)
    return _rule_on_unpaid(own)


def _rule_on_paid(charge: Charge, own: PaymentIntent | None, evidence: Evidence) -> Ruling:
    if not evidence.paid:
        return Refused("Stripe shows nothing of it as paid: say unpaid, or canceled")
    if len(evidence.paid) > 1:
        names = ", ".join(one.id for one in evidence.paid)
        return Refused(
            f"it is paid more than once, by {names}: give back all but one first with "
            f"chargeonce refund {charge.charge_id} --payment-intent ..."
        )
    [paid] = evidence.paid
    owed = (charge.amount_minor, charge.currency, charge.customer)
    if owed != (paid.amount_minor, paid.currency, paid.customer):
        return Refused(
            f"{paid.id} is of {paid.amount_minor} {paid.currency} of {paid.customer}, and what is owed is "
            f"{charge.amount_minor} {charge.currency} of {charge.customer} (minor units): give it back with "
            f"chargeonce refund {charge.charge_id} --payment-intent {paid.id}, then say unpaid"
        )
    if own is not None and own.id != paid.id and own.status != CANCELED_STATUS:
        return Refused(
            f"the charge's own {own.id} is {own.status}, and could be paid as well: cancel it at Stripe first"
        )
    return Allowed(CONCLUSIVE_STATUSES[paid.status], paid)


def _rule_on_unpaid(own: PaymentIntent | None) -> Ruling:
    if own is None:
        return Refused("nothing of it is at Stripe, so nobody has declined it: say canceled")
    if own.status != "requires_payment_method":
        return Refused(f"the charge's own {own.id} is {own.status}, which is no decline: say canceled")
    return Allowed(State.DECLINED, own)
