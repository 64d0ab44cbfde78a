"""Stripe's JSON for refunds, disputes and balance transactions."""

from typing import Any, Final

from deploy.stripe_sim.ledger import Entry
from deploy.stripe_sim.objects import Dispute, Refund

Json = dict[str, Any]

_EVIDENCE: Final = """
access_activity_log billing_address cancellation_policy cancellation_policy_disclosure cancellation_rebuttal
customer_communication customer_email_address customer_name customer_purchase_ip customer_signature
duplicate_charge_documentation duplicate_charge_explanation duplicate_charge_id product_description receipt
refund_policy refund_policy_disclosure refund_refusal_explanation service_date service_documentation
shipping_address shipping_carrier shipping_date shipping_documentation shipping_tracking_number
uncategorized_file uncategorized_text
"""
EVIDENCE: Final = tuple(_EVIDENCE.split())
_CATEGORIES: Final = {
    "charge": "charge",
    "payment": "charge",
    "refund": "refund",
    "payment_refund": "refund",
    "refund_failure": "refund_failure",
    "payment_failure_refund": "refund_failure",
}
_REFUNDED_TO: Final = {"us_bank_account": "us_bank_transfer", "sepa_debit": "eu_bank_transfer"}
_REFUNDABLE: Final = frozenset({"warning_needs_response", "warning_under_review", "warning_closed", "won"})


def show_refund(refund: Refund) -> Json:
    """Return a refund; what only some refunds have is left out elsewhere, as at Stripe."""
    shown: Json = {
        "id": refund.id,
        "object": "refund",
        "amount": refund.amount,
        "balance_transaction": refund.transaction,
        "charge": refund.charge,
        "created": refund.created,
        "currency": refund.currency,
        "destination_details": _show_destination(refund),
        "metadata": refund.metadata,
        "payment_intent": refund.payment_intent,
        "reason": refund.reason,
        "receipt_number": None,
        "source_transfer_reversal": None,
        "status": refund.status,
        "transfer_reversal": None,
    }
    if refund.status == "pending":
        shown["pending_reason"] = "processing"
    if refund.status == "failed":
        shown["failure_balance_transaction"] = refund.failure_transaction
        shown["failure_reason"] = refund.failure_reason
    return shown


def _show_destination(refund: Refund) -> Json:
    if refund.kind == "card":
        details: Json = {
            "reference_status": "pending" if refund.status == "pending" else "available",
            "reference_type": "acquirer_reference_number",
            "type": "refund",
        }
        if refund.status == "succeeded":
            details["reference"] = f"{7_000_000_000 + refund.seq}"
        return {"card": details, "type": "card"}
    kind = _REFUNDED_TO.get(refund.kind, refund.kind)
    return {kind: {"reference": None, "reference_status": "pending"}, "type": kind}


def show_dispute(dispute: Dispute, transactions: list[Json]) -> Json:
    """Return a dispute with the balance transactions that it caused."""
    is_inquiry = dispute.status.startswith("warning")
    return {
        "id": dispute.id,
        "object": "dispute",
        "amount": dispute.amount,
        "balance_transactions": transactions,
        "charge": dispute.charge,
        "created": dispute.created,
        "currency": dispute.currency,
        "enhanced_eligibility_types": [],
        "evidence": {**{name: dispute.evidence.get(name) for name in EVIDENCE}, "enhanced_evidence": {}},
        "evidence_details": {
            "due_by": dispute.due_by,
            "enhanced_eligibility": {},
            "has_evidence": bool(dispute.evidence),
            "past_due": dispute.status == "lost" and not dispute.submissions,
            "submission_count": dispute.submissions,
            "submission_method": "manual" if dispute.submissions else "not_submitted",
        },
        "is_charge_refundable": dispute.status in _REFUNDABLE,
        "livemode": False,
        "metadata": dispute.metadata,
        "network_reason_code": "10.4" if dispute.reason == "fraudulent" else "13.1",
        "payment_intent": dispute.payment_intent,
        "payment_method_details": {
            "card": {
                "brand": dispute.brand,
                "case_type": "inquiry" if is_inquiry else "chargeback",
                "network": dispute.brand,
                "network_reason_code": "10.4" if dispute.reason == "fraudulent" else "13.1",
            },
            "type": "card",
        },
        "reason": dispute.reason,
        "status": dispute.status,
    }


def show_transaction(entry: Entry, now: float) -> Json:
    """Return a balance transaction as it stands at `now` (Unix seconds)."""
    return {
        "id": entry.id,
        "object": "balance_transaction",
        "amount": entry.amount,
        "available_on": entry.available_on,
        "balance_type": "payments",
        "created": entry.created,
        "currency": entry.currency,
        "description": None,
        "exchange_rate": None,
        "fee": entry.fee,
        "fee_details": _show_fees(entry),
        "net": entry.amount - entry.fee,
        "reporting_category": _category(entry),
        "source": entry.source,
        "status": "available" if entry.available_on <= now else "pending",
        "type": entry.kind,
    }


def _category(entry: Entry) -> str:
    if entry.kind == "adjustment":
        return "dispute" if entry.amount < 0 else "dispute_reversal"
    return _CATEGORIES[entry.kind]


def _show_fees(entry: Entry) -> list[Json]:
    if not entry.fee:
        return []
    description = "Dispute fee" if entry.kind == "adjustment" else "Stripe processing fees"
    fee = {"amount": entry.fee, "application": None, "currency": entry.currency}
    return [{**fee, "description": description, "type": "stripe_fee"}]
