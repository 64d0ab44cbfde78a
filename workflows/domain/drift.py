"""How ledger and Stripe can differ after the fact, under fixed names, and what may be done about each way.

A repair that moves no money brings the ledger to Stripe's word, or takes an unconfirmed leftover away. The
one repair that moves money, the refund of a duplicate, is never applied by a reconciliation: somebody
approves it by naming the PaymentIntent and the amount.
"""

from dataclasses import dataclass
from enum import StrEnum


class DriftKind(StrEnum):
    """What differs, the worst first. The names are fixed: reports, alerts and scripts rest on them."""

    DUPLICATE = "duplicate"
    MISSING_AT_STRIPE = "missing_at_stripe"
    MISSING_IN_LEDGER = "missing_in_ledger"
    STATUS = "status"
    AMOUNT = "amount"
    CURRENCY = "currency"
    CUSTOMER = "customer"
    REFUND = "refund"
    ORPHAN = "orphan"
    EVENT_GAP = "event_gap"


SEVERITY = {kind: rank for rank, kind in enumerate(DriftKind)}


class Repair(StrEnum):
    """What would end a difference."""

    MERGE = "merge"  # let the ledger record Stripe's word
    RESTORE = "restore"  # give an altered row back what was frozen with its key
    CANCEL = "cancel"  # cancel an unconfirmed PaymentIntent that is not its charge's own
    KEEP_EVENT = "keep_event"  # put a missed event into the inbox
    SAVE_REFUNDS = "save_refunds"  # record what Stripe has refunded
    REFUND = "refund"  # moves money: needs an approval that names PaymentIntent and amount
    RESOLVE = "resolve"  # people decide: `chargeonce resolve`
    NONE = "none"  # nothing that this project could do is right


BY_ITSELF = frozenset({Repair.MERGE, Repair.RESTORE, Repair.CANCEL, Repair.KEEP_EVENT, Repair.SAVE_REFUNDS})
"""What `--repair` applies: none of it moves money."""


class RepairState(StrEnum):
    """Where a difference stands."""

    PROPOSED = "proposed"
    REPAIRED = "repaired"
    FAILED = "failed"  # the repair was tried, and `detail` says why it did not end it
    GONE = "gone"  # a later reconciliation of the same scope did not find it any more


OPEN_STATES = frozenset({RepairState.PROPOSED, RepairState.FAILED})


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference as a reconciliation found it. Amounts in minor units; times in epoch seconds.

    `subject` is the charge, the PaymentIntent or the event that a repair would touch: account, kind and
    subject name a difference for good. `amount_minor` and `currency` are those of what a repair would move.
    """

    kind: DriftKind
    subject: str
    ledger_says: str
    stripe_says: str
    repair: Repair
    charge_id: str | None = None
    run_id: str | None = None
    customer: str | None = None
    line: str | None = None
    payment_intents: tuple[str, ...] = ()
    amount_minor: int | None = None
    currency: str | None = None
    occurred_epoch_seconds: float | None = None
