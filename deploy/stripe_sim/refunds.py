"""/v1/refunds, and what becomes of a refund."""

from collections.abc import Sequence
from typing import Final

from deploy.stripe_sim.behaviours import behaviour_of
from deploy.stripe_sim.errors import ApiError, bad_request, missing_object
from deploy.stripe_sim.forms import (
    merge_metadata,
    take_boolean,
    take_choice,
    take_integer,
    take_text,
)
from deploy.stripe_sim.money import give_back, take_refund_back
from deploy.stripe_sim.objects import Charge, Refund
from deploy.stripe_sim.paging import show_list, take_page
from deploy.stripe_sim.shapes import Json
from deploy.stripe_sim.shapes_of_money import show_refund
from deploy.stripe_sim.simulator import Call, Cause

CREATE_PARAMS: Final = frozenset(
    {"amount", "charge", "payment_intent", "reason", "metadata", "refund_application_fee"}
    | {"reverse_transfer", "expand"}
)
UPDATE_PARAMS: Final = frozenset({"metadata", "expand"})
_REASONS: Final = ("duplicate", "fraudulent", "requested_by_customer")
# docs.stripe.com/refunds: a dispute that takes the money stands in the way of a refund; an inquiry does not.
_BLOCKING: Final = frozenset({"needs_response", "under_review", "lost"})


def create_refund(call: Call) -> Json:
    """POST /v1/refunds."""
    charge = _find_charge(call)
    amount = take_integer(call.params, "amount")
    metadata = merge_metadata(call.params, {})
    reason = take_choice(call.params, "reason", _REASONS)
    take_boolean(call.params, "refund_application_fee")
    take_boolean(call.params, "reverse_transfer")
    amount = _check_amount(call, charge, amount)
    cause, shelf = call.cause(), call.account.refunds
    method = call.account.payment_methods.by_id[charge.payment_method]
    behaviour = behaviour_of(method.documented_id)
    seq = shelf.next_seq()
    refund = Refund(
        id=cause.new_id("re", seq),
        seq=seq,
        created=int(cause.at),
        amount=amount,
        currency=charge.currency,
        status="pending" if behaviour.refund == "pends" else "succeeded",
        charge=charge.id,
        payment_intent=charge.payment_intent,
        customer=charge.customer,
        metadata=metadata,
        reason=reason,
        kind=behaviour.kind,
    )
    if behaviour.refund != "succeeds":
        refund.settles_as = "succeeded" if behaviour.refund == "pends" else "failed"
        refund.settle_at = cause.at + call.simulator.settings.refund_settle_seconds
    before = {"amount_refunded": charge.amount_refunded, "refunded": False}
    charge.amount_refunded += amount
    charge.refunds = [*(charge.refunds or []), refund.id]
    give_back(cause, refund)
    shelf.add(refund)
    cause.schedule(refund)
    call.account.charges.save(charge)
    cause.announce("charge.refunded", charge, before)
    cause.announce("refund.created", refund)
    return show_refund(refund)


def settle_refund(cause: Cause, refund: Refund) -> None:
    """Let a refund become what its payment method has in store for it."""
    before = {"status": refund.status}
    if refund.settles_as == "failed":
        _undo(cause, refund, status="failed", reason="expired_or_canceled_card", before=before)
        return
    refund.status = "succeeded"
    cause.account.refunds.save(refund)
    cause.announce("refund.updated", refund, before)
    cause.announce("charge.refund.updated", refund, before)


def retrieve_refund(call: Call) -> Json:
    """GET /v1/refunds/{id}."""
    return show_refund(find_refund(call, call.ids[0]))


def update_refund(call: Call) -> Json:
    """POST /v1/refunds/{id}."""
    refund = find_refund(call, call.ids[0])
    before = {"metadata": refund.metadata}
    refund.metadata = merge_metadata(call.params, refund.metadata)
    call.account.refunds.save(refund)
    call.cause().announce("refund.updated", refund, before)
    return show_refund(refund)


def cancel_refund(call: Call) -> Json:
    """POST /v1/refunds/{id}/cancel: only where a refund waits for the customer, which none here does."""
    refund = find_refund(call, call.ids[0])
    message = f"Refund {refund.id} cannot be canceled because it has a status of {refund.status}."
    raise ApiError(400, message, executed=True)


def list_refunds(call: Call) -> Json:
    """GET /v1/refunds."""
    charge_id, intent_id = take_text(call.params, "charge"), take_text(call.params, "payment_intent")
    return _list(call, charge_id, intent_id, "/v1/refunds")


def list_charge_refunds(call: Call) -> Json:
    """GET /v1/charges/{id}/refunds."""
    if call.ids[0] not in call.account.charges.by_id:
        raise missing_object("charge", call.ids[0], param="charge")
    return _list(call, call.ids[0], None, f"/v1/charges/{call.ids[0]}/refunds")


def retrieve_charge_refund(call: Call) -> Json:
    """GET /v1/charges/{id}/refunds/{id}."""
    refund = call.account.refunds.by_id.get(call.ids[1])
    if refund is None or refund.charge != call.ids[0]:
        raise missing_object("refund", call.ids[1], param="refund")
    return show_refund(refund)


def find_refund(call: Call, refund_id: str) -> Refund:
    """Return a refund of the account, or raise `resource_missing`."""
    refund = call.account.refunds.by_id.get(refund_id)
    if refund is None:
        raise missing_object("refund", refund_id, param="id")
    return refund


def _find_charge(call: Call) -> Charge:
    charge_id, intent_id = take_text(call.params, "charge"), take_text(call.params, "payment_intent")
    if (charge_id is None) == (intent_id is None):
        message = "One of the following params should be provided for this request: payment_intent or charge."
        raise bad_request(message, code="parameter_missing" if charge_id is None else None)
    if charge_id is None:
        intent = call.account.intents.by_id.get(intent_id or "")
        if intent is None:
            raise missing_object("payment_intent", intent_id or "", param="payment_intent", status=400)
        charges = [call.account.charges.by_id[entry] for entry in intent.charges]
        paid = [charge for charge in charges if charge.status == "succeeded" and charge.captured]
        if not paid:
            raise bad_request(
                f"This PaymentIntent ({intent.id}) does not have a successful charge to refund."
            )
        return paid[-1]
    charge = call.account.charges.by_id.get(charge_id)
    if charge is None:
        raise missing_object("charge", charge_id, param="charge", status=400)
    if charge.status != "succeeded" or not charge.captured:
        raise bad_request(f"Charge {charge.id} cannot be refunded because it was not paid.", param="charge")
    return charge


def _check_amount(call: Call, charge: Charge, amount: int | None) -> int:
    left = charge.amount - charge.amount_refunded
    if charge.dispute is not None and call.account.disputes.by_id[charge.dispute].status in _BLOCKING:
        message = f"Charge {charge.id} has been charged back; cannot issue a refund."
        raise ApiError(400, message, code="charge_disputed", executed=True)
    if left == 0:
        message = f"Charge {charge.id} has already been refunded."
        raise ApiError(400, message, code="charge_already_refunded", executed=True)
    if amount is None:
        return left
    if amount < 1:
        raise bad_request(
            "This value must be greater than or equal to 1.", code="parameter_invalid_integer", param="amount"
        )
    if amount > left:
        message = (
            f"Refund amount ({_show_amount(amount, charge.currency)}) is greater than unrefunded amount on "
            f"charge ({_show_amount(left, charge.currency)})"
        )
        raise ApiError(400, message, param="amount", executed=True)
    return amount


def _show_amount(amount: int, currency: str) -> str:
    return f"{amount / 100:.2f} {currency}"


def _undo(cause: Cause, refund: Refund, *, status: str, reason: str, before: Json) -> None:
    charge = cause.account.charges.by_id[refund.charge]
    refund.status, refund.failure_reason = status, reason
    charge.amount_refunded -= refund.amount
    take_refund_back(cause, refund)
    cause.account.refunds.save(refund)
    cause.account.charges.save(charge)
    cause.announce("refund.failed", refund, before)
    cause.announce("refund.updated", refund, before)
    cause.announce("charge.refund.updated", refund, before)


def _list(call: Call, charge_id: str | None, intent_id: str | None, url: str) -> Json:
    shelf = call.account.refunds
    items: Sequence[Refund] = shelf.in_order
    if charge_id is not None:
        charge = call.account.charges.by_id.get(charge_id)
        items = [shelf.by_id[entry] for entry in (charge.refunds or [])] if charge is not None else []
    if intent_id is not None:
        items = [refund for refund in items if refund.payment_intent == intent_id]
    page, has_more = take_page(call.params, shelf, items, "refund")
    return show_list(url, [show_refund(refund) for refund in page], has_more=has_more)
