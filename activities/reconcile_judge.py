"""What a comparison of one charge with Stripe is called in a drift report, and what would end it.

The comparison itself is the auditor's (`activities.differences`); here its words become those of the report.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from activities.differences import DEAD, IN_FLIGHT, MONEY, Kind, Seen, compare, stranger
from activities.ledger.audit import AuditedLine
from activities.ledger.reconcile import ScopedLine
from workflows.domain.drift import Drift, DriftKind, Repair

_BODY = {
    Kind.AMOUNT_MISMATCH: DriftKind.AMOUNT,
    Kind.CURRENCY_MISMATCH: DriftKind.CURRENCY,
    Kind.CUSTOMER_MISMATCH: DriftKind.CUSTOMER,
}
_PLAIN = {
    Kind.FORGOTTEN: (DriftKind.STATUS, Repair.NONE),
    Kind.IN_LEDGER_NOT_AT_STRIPE: (DriftKind.MISSING_AT_STRIPE, Repair.NONE),
    Kind.REFUND_MISMATCH: (DriftKind.REFUND, Repair.SAVE_REFUNDS),
}
_STATUS = frozenset({Kind.CONTRADICTION, Kind.PAID_AT_STRIPE_NOT_IN_LEDGER})


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one charge's two books come to. `is_momentary` says that a second look may end it."""

    drifts: tuple[Drift, ...]
    is_momentary: bool


def agrees(scoped: ScopedLine, one: Seen) -> bool:
    """Return whether a page's PaymentIntent is its charge's own and says what the ledger says.

    Refunds are compared by themselves, since a page of PaymentIntents does not show them.
    """
    line = scoped.line
    if line.payment_intent != one.payment_intent or line.state in {"creating", "confirming", "canceling"}:
        return False
    found = compare(line, (one._replace(returned_minor=line.returned_minor),), closed=scoped.closed)
    return not (found.differences or found.needs_second_look or found.behind)


def is_in_flight_as_shown(scoped: ScopedLine, one: Seen) -> bool:
    """Return whether a page's PaymentIntent is the own one of a charge in flight, or may become it."""
    line = scoped.line
    if line.state == "creating":
        return line.payment_intent is None and one.status not in MONEY
    return line.state in IN_FLIGHT and line.payment_intent == one.payment_intent


def says_nothing(scoped: ScopedLine | None, one: Seen) -> bool:
    """Return whether a page's PaymentIntent can't matter: canceled, and not the charge's own."""
    return one.status == DEAD and (scoped is None or scoped.line.payment_intent != one.payment_intent)


def judge(
    charge_id: str, scoped: ScopedLine | None, seen: Sequence[Seen], *, created: Mapping[str, int]
) -> Judgement:
    """Compare a charge with every PaymentIntent of its identity.

    `created` says when each was made, in epoch seconds by Stripe's clock.
    """
    if scoped is None:
        return Judgement(tuple(_strangers(charge_id, seen, created)), is_momentary=False)
    line = scoped.line
    found = compare(line, seen, closed=scoped.closed)
    said = found.differences[0] if found.differences else None
    words = (said.ledger_says, said.stripe_says) if said else _words(line, seen)
    named = [*_of_kinds([one.kind for one in found.differences], line, seen, created)]
    if found.behind:
        named.append((DriftKind.STATUS, Repair.MERGE, None))
    if line.state != "creating":  # whose create has no answer yet: it may be what it is about to adopt
        named += [
            (DriftKind.ORPHAN, Repair.CANCEL, one)
            for one in seen
            if one.status not in MONEY | {DEAD} and one.payment_intent != line.payment_intent
        ]
    drifts = tuple(
        Drift(
            kind=kind,
            subject=charge_id if of is None else of.payment_intent,
            ledger_says=words[0],
            stripe_says=words[1],
            repair=repair,
            charge_id=charge_id,
            run_id=line.run_id,
            customer=line.customer,
            line=line.line,
            payment_intents=tuple(one.payment_intent for one in ([of] if of else seen)),
            amount_minor=None if of is None else of.amount_minor - of.returned_minor,
            currency=None if of is None else of.currency,
            occurred_epoch_seconds=None if of is None else created.get(of.payment_intent),
        )
        for kind, repair, of in named
    )
    return Judgement(drifts, is_momentary=found.needs_second_look)


_Named = tuple[DriftKind, Repair, Seen | None]


def _of_kinds(
    kinds: Sequence[Kind], line: AuditedLine, seen: Sequence[Seen], created: Mapping[str, int]
) -> Iterator[_Named]:
    """Yield what an auditor's words are called here, what would end it, and by which PaymentIntent."""
    paid = [one for one in seen if one.status in MONEY and not one.is_returned]
    for kind in kinds:
        if kind is Kind.DUPLICATE:
            for one in _too_many(line, paid, created):
                yield DriftKind.DUPLICATE, Repair.REFUND, one
        elif kind in _BODY:
            own = any(one.payment_intent == line.payment_intent for one in paid)
            yield _BODY[kind], Repair.RESTORE if own else Repair.RESOLVE, None
        elif kind in _STATUS:
            yield DriftKind.STATUS, _merge_or_resolve(line, paid), None
        else:
            yield *_PLAIN[kind], None


def _words(line: AuditedLine, seen: Sequence[Seen]) -> tuple[str, str]:
    own = f" by {line.payment_intent}" if line.payment_intent else ""
    says = f"{line.state} {line.amount_minor} {line.currency}{own}"
    return says, ", ".join(one.text for one in seen) or "nothing of this identity"


def _too_many(line: AuditedLine, paid: Sequence[Seen], created: Mapping[str, int]) -> list[Seen]:
    """Return all that is paid but the one that stays: the charge's own, else the first that was made."""
    ordered = sorted(
        paid,
        key=lambda one: (
            one.payment_intent != line.payment_intent,
            created.get(one.payment_intent, 0),
            one.payment_intent,
        ),
    )
    return ordered[1:]


def _merge_or_resolve(line: AuditedLine, paid: Sequence[Seen]) -> Repair:
    """Stripe's word about the charge's own PaymentIntent is merged; beside it, people decide."""
    own = len(paid) == 1 and line.payment_intent in {None, paid[0].payment_intent}
    return Repair.MERGE if own and line.state not in {"review", "skipped", *MONEY} else Repair.RESOLVE


def _strangers(charge_id: str, seen: Sequence[Seen], created: Mapping[str, int]) -> list[Drift]:
    if not stranger(charge_id, seen):
        return []
    return [
        Drift(
            kind=DriftKind.MISSING_IN_LEDGER if one.status in MONEY else DriftKind.ORPHAN,
            subject=one.payment_intent,
            ledger_says="no charge of this identity in any run",
            stripe_says=one.text,
            repair=Repair.NONE,
            charge_id=charge_id,
            customer=one.customer,
            payment_intents=(one.payment_intent,),
            amount_minor=one.amount_minor - one.returned_minor,
            currency=one.currency,
            occurred_epoch_seconds=created.get(one.payment_intent),
        )
        for one in seen
        if one.status != DEAD and not one.is_returned
    ]
