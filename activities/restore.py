"""A row that was altered by hand gets back what Stripe was asked for, where ledger and Stripe agree on that.

Three witnesses have to say the same: the frozen body of the key that made the charge's PaymentIntent, the
PaymentIntent as Stripe shows it, and the identity, which is a hash over the customer among others. What they
do not agree on is for people to decide.
"""

import json
from dataclasses import asdict, dataclass

from activities.ledger.charges import ChargeLedger
from activities.ledger.database import Pool
from activities.ledger.restore import Body, RowRestoreLedger
from workflows.domain.answer import PaymentIntent
from workflows.domain.charge import Charge, FrozenKey
from workflows.domain.errors import InvalidInput, StaleWrite
from workflows.domain.keys import Identity, Operation, fingerprint
from workflows.domain.recovery import CANCELED_STATUS


@dataclass(frozen=True, slots=True)
class Restored:
    """The charge as it is now, or None where it was left as it was; and why."""

    charge: Charge | None
    reason: str


async def restore_row(pool: Pool, charge: Charge, found: PaymentIntent, *, reason: str, who: str) -> Restored:
    """Give an altered charge back the amount, currency and customer that are frozen in its create key.

    Args:
        pool: The ledger.
        charge: The row as it was read before Stripe was asked.
        found: The charge's own PaymentIntent, as Stripe shows it now.
        reason: Why, for the journal.
        who: Who lets it happen, for the journal.
    """
    if charge.payment_intent is None or charge.payment_intent != found.id:
        return Restored(None, f"{found.id} is not the charge's own PaymentIntent")
    if charge.create_version == 0:
        return Restored(None, "no create was ever intended for it")
    key = charge.key_of(Operation.CREATE, charge.create_version)
    try:
        frozen, _ = await ChargeLedger(pool).frozen_key(key)
    except StaleWrite as unknown:
        return Restored(None, str(unknown))
    body = _body_of(frozen)
    refusal = _find_refusal(charge, frozen, body, found)
    if refusal is not None or body is None:
        return Restored(None, refusal or f"the body of {key} can't be read")
    before = Body(charge.amount_minor, charge.currency, charge.customer)
    if body == before:
        return Restored(None, "it is what Stripe was asked for already")
    told = f"{reason}: {_tell(before)} -> {_tell(body)}, as frozen with {key} (by {who})"
    try:
        restored = await RowRestoreLedger(pool).restore(
            charge,
            body,
            reason=told,
            payment_intent=found.id,
            create_key=key,
            who=who,
            before=asdict(before),
            after=asdict(body),
        )
    except StaleWrite as stale:
        return Restored(None, str(stale))
    return Restored(restored, told)


def _find_refusal(charge: Charge, frozen: FrozenKey, body: Body | None, found: PaymentIntent) -> str | None:
    if fingerprint(frozen.path, frozen.parameters) != frozen.fingerprint:
        return f"the body stored under {frozen.key} is not the one that was frozen"
    if body is None:
        return f"the body of {frozen.key} can't be read"
    if found.charge_id != charge.charge_id or found.create_key != frozen.key:
        return f"{found.id} was not made by {frozen.key}"
    if found.status == CANCELED_STATUS:
        return f"{found.id} is canceled: a later run may have corrected the charge"
    if body != Body(found.amount_minor, found.currency, found.customer or ""):
        return f"the body of {frozen.key} and Stripe disagree: people decide"
    try:
        identity = Identity.of(charge.account, body.customer, charge.period, charge.line)
    except InvalidInput as refusal:
        return refusal.reason
    if identity.charge_id != charge.charge_id:
        return "with that customer the charge would be another one"
    return None


def _body_of(frozen: FrozenKey) -> Body | None:
    try:
        parameters = json.loads(frozen.parameters)
        return Body(
            amount_minor=int(parameters["amount"]),
            currency=str(parameters["currency"]),
            customer=str(parameters["customer"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _tell(body: Body) -> str:
    return f"{body.amount_minor} {body.currency} of {body.customer}"
