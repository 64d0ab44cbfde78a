"""How one line of the ledger and Stripe's books can disagree, and what to do about each way.

A reading of its own, shared with nothing that charges: if the run misreads a status, the same mistake must
not hide here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from activities.ledger.audit import AuditedLine

MONEY = frozenset(
    {"succeeded", "processing"}
)  # the same words in Stripe's statuses and in the ledger's states
DEAD = "canceled"
IN_FLIGHT = frozenset({"creating", "confirming", "canceling"})
NOT_STARTED = frozenset({"planned", "prepared"})


class Kind(StrEnum):
    """What is wrong, the worst first."""

    DUPLICATE = "duplicate"
    CONTRADICTION = "contradiction"
    PAID_AT_STRIPE_NOT_IN_LEDGER = "paid_at_stripe_not_in_ledger"
    IN_LEDGER_NOT_AT_STRIPE = "in_ledger_not_at_stripe"
    AMOUNT_MISMATCH = "amount_mismatch"
    CURRENCY_MISMATCH = "currency_mismatch"
    CUSTOMER_MISMATCH = "customer_mismatch"
    REFUND_MISMATCH = "refund_mismatch"
    STRANGER = "stranger"
    FORGOTTEN = "forgotten"
    COUNTS = "counts"


# What may only be a question of when either side was read.
_OF_MOMENTS = frozenset({Kind.IN_LEDGER_NOT_AT_STRIPE, Kind.REFUND_MISMATCH})

SEVERITY = {kind: rank for rank, kind in enumerate(Kind)}

WHAT_TO_DO = {
    Kind.DUPLICATE: "the customer has paid or will pay more than once: stop the run, refund all but one",
    Kind.CONTRADICTION: "the ledger gave it up, but Stripe has the money: do not charge again, record it",
    Kind.PAID_AT_STRIPE_NOT_IN_LEDGER: "do not charge again: let the ledger record Stripe's word first",
    Kind.IN_LEDGER_NOT_AT_STRIPE: "the money is not there: find out why before the customer is charged again",
    Kind.AMOUNT_MISMATCH: "refund or collect the difference by hand",
    Kind.CURRENCY_MISMATCH: "refund it and charge in the right currency",
    Kind.CUSTOMER_MISMATCH: "the wrong customer has paid: refund them",
    Kind.REFUND_MISMATCH: "let the ledger record what Stripe has refunded: chargeonce reconcile --repair",
    Kind.STRANGER: "find the other ledger that made it (a restored backup, a test with this account's key)",
    Kind.FORGOTTEN: "the run is closed, but nobody decided about this charge: bill it with a later run",
    Kind.COUNTS: "rows are missing or were added outside of a run: compare with the source file",
}


class Seen(NamedTuple):
    """What Stripe says about one PaymentIntent; small, since there is one per line."""

    payment_intent: str
    status: str
    amount_minor: int
    currency: str
    customer: str | None
    returned_minor: int = 0

    @property
    def is_returned(self) -> bool:
        """Whether all of it went back by refunds, or is on its way back: nobody has paid by it any more."""
        return 0 < self.amount_minor <= self.returned_minor

    @property
    def text(self) -> str:
        """Return it in a few words."""
        back = f" ({self.returned_minor} refunded)" if self.returned_minor else ""
        paid = f"{self.status} {self.amount_minor} {self.currency}{back}"
        return f"{self.payment_intent} {paid} of {self.customer}"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that the ledger and Stripe do not agree on. Amounts in texts are in minor units."""

    kind: Kind
    charge_id: str | None
    customer: str | None
    line: str | None
    payment_intents: tuple[str, ...]
    ledger_says: str
    stripe_says: str

    @property
    def what_to_do(self) -> str:
        """Return advice for whoever reads the report."""
        return WHAT_TO_DO[self.kind]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "kind": self.kind.value,
            "charge_id": self.charge_id,
            "customer": self.customer,
            "line": self.line,
            "payment_intents": list(self.payment_intents),
            "ledger_says": self.ledger_says,
            "stripe_says": self.stripe_says,
            "what_to_do": self.what_to_do,
        }

    def as_text(self) -> str:
        """Return it as one line."""
        where = " ".join(part for part in (self.charge_id, self.customer, self.line) if part)
        return (
            f"{self.kind}: {where}: ledger: {self.ledger_says}; Stripe: {self.stripe_says}. {self.what_to_do}"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """What comparing one line came to.

    `needs_second_look` says that the difference may be only a question of when either side was read. `paid`
    is what counts as the line's money: what went back in full counts only as the own PaymentIntent of a paid
    row, since a refund stands beside a success and never instead of it (invariant I8).
    """

    differences: tuple[Difference, ...]
    needs_second_look: bool
    paid: tuple[Seen, ...]
    leftovers: int
    behind: bool


def compare(line: AuditedLine, seen: Sequence[Seen], *, closed: bool) -> Comparison:
    """Compare one line with every PaymentIntent of its identity at Stripe."""
    own = next((one for one in seen if one.payment_intent == line.payment_intent), None)
    stands = own if line.state in MONEY else None
    counted = tuple(one for one in seen if one.status in MONEY and (one is stands or not one.is_returned))
    paid = tuple(one for one in counted if not one.is_returned)
    kinds = [Kind.DUPLICATE] if len(paid) > 1 else []
    kinds += _compare_state(line, own, paid)
    kinds += _compare_money(line, counted)
    if line.returned_minor != sum(one.returned_minor for one in seen):
        kinds.append(Kind.REFUND_MISMATCH)
    if closed and line.state in IN_FLIGHT | NOT_STARTED:
        kinds.append(Kind.FORGOTTEN)
    moving = any(one.status == "processing" for one in paid) and Kind.CONTRADICTION in kinds
    return Comparison(
        differences=tuple(_difference(kind, line, seen) for kind in kinds),
        needs_second_look=moving or not _OF_MOMENTS.isdisjoint(kinds),
        paid=counted,
        leftovers=sum(one.status not in MONEY and one.status != DEAD and one is not own for one in seen),
        behind=line.state == "processing" and own is not None and own.status == "succeeded",
    )


def _compare_state(line: AuditedLine, own: Seen | None, paid: Sequence[Seen]) -> list[Kind]:
    missing = line.payment_intent is not None and own is None
    unpaid = line.state in MONEY and (own is None or own.status not in {line.state, "succeeded"})
    kinds = [Kind.IN_LEDGER_NOT_AT_STRIPE] if missing or unpaid else []
    if paid and line.state in NOT_STARTED:
        kinds.append(Kind.PAID_AT_STRIPE_NOT_IN_LEDGER)
    elif paid and line.state not in IN_FLIGHT | MONEY:
        kinds.append(Kind.CONTRADICTION)
    elif line.state in MONEY and paid and own not in paid:
        kinds.append(Kind.PAID_AT_STRIPE_NOT_IN_LEDGER)
    return kinds


def _compare_money(line: AuditedLine, paid: Sequence[Seen]) -> list[Kind]:
    kinds = []
    if any(one.amount_minor != line.amount_minor for one in paid):
        kinds.append(Kind.AMOUNT_MISMATCH)
    if any(one.currency != line.currency for one in paid):
        kinds.append(Kind.CURRENCY_MISMATCH)
    if any(one.customer != line.customer for one in paid):
        kinds.append(Kind.CUSTOMER_MISMATCH)
    return kinds


def _difference(kind: Kind, line: AuditedLine, seen: Sequence[Seen]) -> Difference:
    own = line.payment_intent
    return Difference(
        kind=kind,
        charge_id=line.charge_id,
        customer=line.customer,
        line=line.line,
        payment_intents=tuple(dict.fromkeys(([own] if own else []) + [one.payment_intent for one in seen])),
        ledger_says=(
            f"{line.state} {line.amount_minor} {line.currency}"
            + (f" ({line.returned_minor} refunded)" if line.returned_minor else "")
            + (f" by {own}" if own else "")
        ),
        stripe_says=", ".join(one.text for one in seen) or "nothing of this identity",
    )


def stranger(charge_id: str, seen: Sequence[Seen]) -> list[Difference]:
    """Return what is to be said about PaymentIntents whose identity is in no run of the ledger.

    Canceled ones can never move money, and what went back in full has none: nothing is said about them.
    """
    alive = [one for one in seen if one.status != DEAD and not one.is_returned]
    if not alive:
        return []
    kinds = [Kind.STRANGER]
    if sum(one.status in MONEY for one in alive) > 1:
        kinds.append(Kind.DUPLICATE)
    return [
        Difference(
            kind=kind,
            charge_id=charge_id,
            customer=alive[0].customer,
            line=None,
            payment_intents=tuple(one.payment_intent for one in alive),
            ledger_says="no charge of this identity in any run",
            stripe_says=", ".join(one.text for one in alive),
        )
        for kind in kinds
    ]
