"""What a refetched PaymentIntent means for a charge, whatever state the charge is in.

`workflows.domain.recovery` decides for a charge in flight, whose sender looks for its own request. Here
nobody of ours asked: a webhook, or whoever reads Stripe's books, found the object as it is now. So only what
can't depend on our own requests counts:

* Money wins. `succeeded` and `processing` apply to every state that may become them.
* `canceled` applies to the row's own PaymentIntent, and not where a later run has reopened the charge: there
  it was known before, or the run finds it with its first look.
* `requires_*` applies only to a debit that failed after we knew it as `processing`. It never takes a charge
  out of `confirming` (invariant I14): whether the confirm still runs, the window decides, and the run asks.
* A PaymentIntent of the identity that is not the row's own and is paid is a second payment, or the first one
  of a charge that must not be confirmed any more. People see both.

Neither the order of events nor their times enter: `merge` sees the row and the object, nothing else.
"""

from dataclasses import dataclass
from enum import StrEnum

from workflows.domain.answer import PaymentIntent
from workflows.domain.charge import Charge
from workflows.domain.errors import invariant
from workflows.domain.keys import Operation
from workflows.domain.recovery import CANCELED_STATUS, PAID_STATUSES
from workflows.domain.states import PAID_OR_PAYING, State, is_legal, is_surprise
from workflows.domain.verdict import CONCLUSIVE_STATUSES, Proof, judge_status

# Nobody of ours asked for money in these states, or not for this money.
_UNEXPECTED = frozenset({State.PLANNED, State.SKIPPED})
_REVIEWABLE = frozenset(state for state in State if is_legal(state, State.REVIEW))


@dataclass(frozen=True, slots=True)
class Nothing:
    """The charge stays as it is."""

    reason: str


@dataclass(frozen=True, slots=True)
class Apply:
    """The charge becomes `state`, by this PaymentIntent."""

    state: State
    payment_intent: PaymentIntent
    reason: str
    alarm: bool = False


@dataclass(frozen=True, slots=True)
class Alarm:
    """The charge stays as it is, and people must see why: `decision` names the kind of contradiction."""

    decision: str
    reason: str


Merge = Nothing | Apply | Alarm


def merge(charge: Charge, intent: PaymentIntent) -> Merge:
    """Return what a PaymentIntent of the charge's identity, as Stripe states it now, means for the charge.

    `charge` is the row from before the lookup; whoever applies the result does so only if state, versions and
    PaymentIntent are still those.
    """
    invariant(intent.charge_id == charge.charge_id, "only a PaymentIntent of the charge's identity is merged")
    if charge.payment_intent is not None and charge.payment_intent != intent.id:
        return _merge_other(charge, intent)
    if intent.status in PAID_STATUSES:
        return _merge_paid(charge, intent)
    if intent.status == CANCELED_STATUS:
        return _merge_canceled(charge, intent)
    return _merge_open(charge, intent)


def _merge_paid(charge: Charge, intent: PaymentIntent) -> Merge:
    state = CONCLUSIVE_STATUSES[intent.status]
    if charge.state is state:
        return Nothing(f"{state} already")
    if charge.state is State.SUCCEEDED:
        return Nothing(f"succeeded stays, whatever {intent.status} means")
    reason = f"Stripe says {intent.status}"
    got = (intent.amount_minor, intent.currency)
    if got != (charge.amount_minor, charge.currency):
        wrong = f"{reason}, but {intent.id} is of {got}"
        if charge.state is State.REVIEW:
            return Nothing(f"in review already: {wrong}")
        return _stop(charge, intent, wrong, decision="wrong_amount")
    if not is_legal(charge.state, state):
        return Alarm("paid_at_stripe", f"{reason}, and the charge is {charge.state}")
    alarm = is_surprise(charge.state, state) or charge.state in _UNEXPECTED
    return Apply(state, intent, reason, alarm=alarm)


def _merge_canceled(charge: Charge, intent: PaymentIntent) -> Merge:
    if charge.payment_intent is None:
        return Nothing("a canceled PaymentIntent of an earlier version")
    if charge.state is State.CANCELED:
        return Nothing("canceled already")
    if charge.state is State.PLANNED:
        return Nothing("the run that reopened the charge looks at it before it sends anything")
    if not is_legal(charge.state, State.CANCELED):
        return Alarm("canceled_at_stripe", f"Stripe says canceled, and the charge is {charge.state}")
    return Apply(State.CANCELED, intent, "Stripe says canceled")


def _merge_open(charge: Charge, intent: PaymentIntent) -> Merge:
    if charge.state is not State.PROCESSING or charge.payment_intent is None:
        return Nothing(f"{intent.status} decides nothing for a charge in {charge.state}")
    verdict = judge_status(Operation.CONFIRM, intent)
    if verdict.proof is not Proof.PROVED or verdict.state is None:
        return Nothing(f"{intent.status} decides nothing for a charge in {charge.state}")
    reason = f"the debit did not go through: {verdict.reason}"
    return Apply(verdict.state, intent, reason, alarm=verdict.state is State.REVIEW)


def _merge_other(charge: Charge, intent: PaymentIntent) -> Merge:
    if intent.status not in PAID_STATUSES:
        return Nothing(f"{intent.id} is {intent.status}, and not the charge's own")
    if charge.state in PAID_OR_PAYING:
        return Alarm(
            "duplicate",
            f"DUPLICATE: {intent.id} is {intent.status}, beside the charge's own {charge.payment_intent}",
        )
    if charge.state is State.REVIEW:
        return Nothing(f"in review already: {intent.id} is {intent.status}, and not the charge's own")
    reason = f"{intent.id} is {intent.status}, and the charge's own is {charge.payment_intent}"
    return _stop(charge, intent, reason, decision="duplicate")


def _stop(charge: Charge, intent: PaymentIntent, reason: str, *, decision: str) -> Merge:
    """Whatever else is true, the customer is paying: nothing more may be sent for this charge."""
    if charge.state in _REVIEWABLE:
        return Apply(State.REVIEW, intent, reason, alarm=True)
    state = CONCLUSIVE_STATUSES[intent.status]
    if is_legal(charge.state, state):
        return Apply(state, intent, reason, alarm=True)
    return Alarm(decision, reason)


class About(StrEnum):
    """What an event is about, by its type: which objects are looked at."""

    PAYMENT = "payment"
    REFUNDS = "refunds"
    DISPUTES = "disputes"
    NOTHING = "nothing"  # that concerns a charge of ours


# An object that was only created moves no money: the answer to its create says more, or a lookup does.
_UNEVENTFUL = frozenset({"payment_intent.created", "charge.updated"})
_TELLS = {
    "charge.succeeded": State.SUCCEEDED,
    "payment_intent.succeeded": State.SUCCEEDED,
    "charge.pending": State.PROCESSING,
    "payment_intent.processing": State.PROCESSING,
    "charge.failed": State.DECLINED,
    "payment_intent.payment_failed": State.DECLINED,
    "payment_intent.requires_action": State.NEEDS_CUSTOMER,
    "payment_intent.canceled": State.CANCELED,
}


def about(event_type: str) -> About:
    """Return what an event of this type is about."""
    if event_type in _UNEVENTFUL:
        return About.NOTHING
    if event_type.startswith(("refund.", "charge.refund")):
        return About.REFUNDS
    if event_type.startswith("charge.dispute."):
        return About.DISPUTES
    if event_type.startswith(("payment_intent.", "charge.")):
        return About.PAYMENT
    return About.NOTHING


def is_known(charge: Charge, payment_intent: str, event_type: str) -> bool:
    """Return whether the ledger has what such an event can tell, so that nobody need be asked.

    Never more than an economy: what it skips, a look would have left as it is, and every later change at
    Stripe has an event of its own.
    """
    if about(event_type) is not About.PAYMENT or charge.payment_intent != payment_intent:
        return False
    return charge.state is State.SUCCEEDED or _TELLS.get(event_type) is charge.state
