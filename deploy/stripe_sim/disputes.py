"""/v1/disputes, and how a dispute goes."""

from collections.abc import Sequence
from typing import Final

from deploy.stripe_sim.behaviours import behaviour_of
from deploy.stripe_sim.errors import ApiError, missing_object
from deploy.stripe_sim.fees import DISPUTE_FEE
from deploy.stripe_sim.forms import (
    Params,
    merge_metadata,
    refuse_unknown,
    take_boolean,
    take_hash,
    take_text,
)
from deploy.stripe_sim.money import adjust
from deploy.stripe_sim.objects import Charge, Dispute
from deploy.stripe_sim.paging import show_list, take_page
from deploy.stripe_sim.rendering import render
from deploy.stripe_sim.shapes import Json
from deploy.stripe_sim.shapes_of_money import EVIDENCE
from deploy.stripe_sim.simulator import Call, Cause

UPDATE_PARAMS: Final = frozenset({"evidence", "metadata", "submit", "expand"})
# docs.stripe.com/disputes/responding: card networks give 7 to 21 days.
ANSWER_SECONDS: Final = 9 * 86_400
_EVIDENCE: Final = frozenset(EVIDENCE)
_OPEN: Final = frozenset({"needs_response", "warning_needs_response"})


def open_dispute(cause: Cause, charge: Charge) -> None:
    """Let the bank's customer dispute a charge."""
    method = cause.account.payment_methods.by_id[charge.payment_method]
    behaviour = behaviour_of(method.documented_id)
    is_inquiry = behaviour.dispute == "inquiry"
    shelf = cause.account.disputes
    seq = shelf.next_seq()
    due_at = cause.at + ANSWER_SECONDS
    dispute = Dispute(
        id=cause.new_id("du", seq),
        seq=seq,
        created=int(cause.at),
        amount=charge.amount - charge.amount_refunded,
        currency=charge.currency,
        status="warning_needs_response" if is_inquiry else "needs_response",
        charge=charge.id,
        payment_intent=charge.payment_intent,
        reason="fraudulent" if is_inquiry else behaviour.dispute or "general",
        due_by=int(due_at),
        brand=behaviour.brand,
        settle_at=due_at,
    )
    charge.dispute = dispute.id
    if not is_inquiry:
        _withdraw(cause, dispute)
    shelf.add(dispute)
    cause.schedule(dispute)
    cause.account.charges.save(charge)
    cause.announce("charge.dispute.created", dispute)
    if not is_inquiry:
        cause.announce("charge.dispute.funds_withdrawn", dispute)


def close_unanswered(cause: Cause, dispute: Dispute) -> None:
    """Close a dispute whose time to answer is over: nobody wins without evidence."""
    _close(cause, dispute, "warning_closed" if dispute.status.startswith("warning") else "lost")


def retrieve_dispute(call: Call) -> Json:
    """GET /v1/disputes/{id}."""
    return render(call.account, _find(call))


def update_dispute(call: Call) -> Json:
    """POST /v1/disputes/{id}: evidence decides (docs.stripe.com/testing#disputes).

    `winning_evidence` wins, `losing_evidence` loses, `escalate_inquiry_evidence` turns an inquiry into
    a dispute; anything else stays under review.
    """
    dispute = _find(call)
    metadata = merge_metadata(call.params, dispute.metadata)
    evidence = _take_evidence(call.params)
    submits = "submit" not in call.params or take_boolean(call.params, "submit")
    if evidence and dispute.status not in _OPEN:
        message = f"Dispute {dispute.id} is {dispute.status}; no more evidence can be given."
        raise ApiError(400, message, executed=True)
    cause = call.cause()
    before: Json = {"metadata": dispute.metadata, "evidence": dispute.evidence}
    dispute.metadata, dispute.evidence = metadata, {**dispute.evidence, **evidence}
    if dispute.evidence and submits and dispute.status in _OPEN:
        dispute.submissions += 1
        before["status"] = dispute.status
        _judge(cause, dispute)
    else:
        call.account.disputes.save(dispute)
        cause.announce("charge.dispute.updated", dispute, before)
    return render(call.account, dispute)


def close_dispute(call: Call) -> Json:
    """POST /v1/disputes/{id}/close: the merchant gives in."""
    dispute = _find(call)
    if dispute.status not in _OPEN:
        raise ApiError(400, f"Dispute {dispute.id} is already {dispute.status}.", executed=True)
    close_unanswered(call.cause(), dispute)
    return render(call.account, dispute)


def list_disputes(call: Call) -> Json:
    """GET /v1/disputes."""
    shelf = call.account.disputes
    items: Sequence[Dispute] = shelf.in_order
    for field in ("charge", "payment_intent"):
        wanted = take_text(call.params, field)
        if wanted is not None:
            items = [dispute for dispute in items if getattr(dispute, field) == wanted]
    page, has_more = take_page(call.params, shelf, items, "dispute")
    return show_list("/v1/disputes", [render(call.account, entry) for entry in page], has_more=has_more)


def _judge(cause: Cause, dispute: Dispute) -> None:
    text = dispute.evidence.get("uncategorized_text")
    if text == "winning_evidence":
        _close(cause, dispute, "warning_closed" if dispute.status.startswith("warning") else "won")
    elif text == "losing_evidence":
        _close(cause, dispute, "lost")
    elif text == "escalate_inquiry_evidence" and dispute.status.startswith("warning"):
        dispute.status = "needs_response"
        _withdraw(cause, dispute)
        cause.account.disputes.save(dispute)
        cause.announce("charge.dispute.updated", dispute, {"status": "warning_needs_response"})
        cause.announce("charge.dispute.funds_withdrawn", dispute)
    else:
        dispute.status = "warning_under_review" if dispute.status.startswith("warning") else "under_review"
        dispute.settle_at = None
        cause.account.disputes.save(dispute)
        cause.announce("charge.dispute.updated", dispute)


def _close(cause: Cause, dispute: Dispute, status: str) -> None:
    dispute.status, dispute.settle_at = status, None
    if status == "won":
        adjust(cause, dispute, amount=dispute.amount, fee=0)
    cause.account.disputes.save(dispute)
    if status == "won":
        cause.announce("charge.dispute.funds_reinstated", dispute)
    cause.announce("charge.dispute.closed", dispute)


def _withdraw(cause: Cause, dispute: Dispute) -> None:
    adjust(cause, dispute, amount=-dispute.amount, fee=DISPUTE_FEE)


def _find(call: Call) -> Dispute:
    dispute = call.account.disputes.by_id.get(call.ids[0])
    if dispute is None:
        raise missing_object("dispute", call.ids[0], param="dispute")
    return dispute


def _take_evidence(params: Params) -> dict[str, str]:
    given = take_hash(params, "evidence")
    refuse_unknown(given, _EVIDENCE, inside="evidence")
    texts = {name: take_text(given, name, characters_max=20_000) for name in given}
    return {name: text for name, text in texts.items() if text is not None}
