"""Where money moves: book and ledger are written here, and nowhere else."""

from deploy.stripe_sim.behaviours import Behaviour
from deploy.stripe_sim.fees import charge_fee
from deploy.stripe_sim.objects import Charge, Dispute, Refund
from deploy.stripe_sim.simulator import Cause


def collect(cause: Cause, charge: Charge, behaviour: Behaviour) -> None:
    """Take the money of a charge, all of it or what was captured; the charge is the caller's to save."""
    amount = charge.amount if charge.amount_captured is None else charge.amount_captured
    charge.transaction = cause.account.ledger.enter(
        "charge" if behaviour.kind == "card" else "payment",
        at=cause.at,
        amount=amount,
        fee=charge_fee(behaviour.kind, amount),
        currency=charge.currency,
        source=charge.id,
    )
    if behaviour.dispute is not None:
        charge.settle_at = cause.at + cause.simulator.settings.dispute_after_seconds
        cause.schedule(charge)
    cause.simulator.book.enter(
        at=cause.at,
        account=cause.account.id,
        payment_intent=charge.payment_intent,
        charge=charge.id,
        customer=charge.customer,
        amount=amount,
        currency=charge.currency,
        metadata=charge.metadata,
        request=cause.request,
    )


def give_back(cause: Cause, refund: Refund) -> None:
    """Take the money of a refund from the balance."""
    refund.transaction = cause.account.ledger.enter(
        "refund" if refund.kind == "card" else "payment_refund",
        at=cause.at,
        amount=-refund.amount,
        fee=0,
        currency=refund.currency,
        source=refund.id,
    )


def take_refund_back(cause: Cause, refund: Refund) -> None:
    """Put the money of a refund that failed back on the balance."""
    refund.failure_transaction = cause.account.ledger.enter(
        "refund_failure" if refund.kind == "card" else "payment_failure_refund",
        at=cause.at,
        amount=refund.amount,
        fee=0,
        currency=refund.currency,
        source=refund.id,
    )


def adjust(cause: Cause, dispute: Dispute, *, amount: int, fee: int) -> None:
    """Withdraw (negative) or reinstate the money of a dispute."""
    transaction = cause.account.ledger.enter(
        "adjustment", at=cause.at, amount=amount, fee=fee, currency=dispute.currency, source=dispute.id
    )
    dispute.transactions.append(transaction)
