"""Stripe's JSON for charges."""

from deploy.stripe_sim.behaviours import behaviour_of
from deploy.stripe_sim.objects import Charge, PaymentMethod
from deploy.stripe_sim.shapes import Json, show_billing, show_details

# Of a payment method's details, these are not repeated on the charge.
_NOT_ON_CHARGE = frozenset(
    {"display_brand", "generated_from", "networks", "three_d_secure_usage", "status_details"}
    | {"financial_connections_account"}
)
_CARD_EXTRAS = {
    "authorization_code": None,
    "extended_authorization": {"status": "disabled"},
    "incremental_authorization": {"status": "unavailable"},
    "installments": None,
    "mandate": None,
    "multicapture": {"status": "unavailable"},
    "network_token": {"used": False},
    "network_transaction_id": "104102978678771",
    "three_d_secure": None,
}
_APPROVED = {
    "advice_code": None,
    "network_advice_code": None,
    "network_decline_code": None,
    "network_status": "approved_by_network",
    "reason": None,
    "risk_level": "normal",
    "risk_score": 5,
    "seller_message": "Payment complete.",
    "type": "authorized",
}


def show_charge(charge: Charge, method: PaymentMethod | None) -> Json:
    """Return a charge; `method` gives the details of what it was paid with."""
    failure, texts = charge.failure or {}, charge.texts or {}
    captured = charge.captured and charge.status == "succeeded"
    amount_captured = charge.amount if charge.amount_captured is None else charge.amount_captured
    refunded = charge.amount_refunded == charge.amount
    return {
        "id": charge.id,
        "object": "charge",
        "amount": charge.amount,
        "amount_captured": amount_captured if captured else 0,
        "amount_refunded": charge.amount_refunded,
        "application": None,
        "application_fee": None,
        "application_fee_amount": None,
        "balance_transaction": charge.transaction,
        "billing_details": show_billing(method),
        "calculated_statement_descriptor": _show_descriptor(charge),
        "captured": captured,
        "created": charge.created,
        "currency": charge.currency,
        "customer": charge.customer,
        "description": charge.description,
        "disputed": charge.dispute is not None,
        "failure_balance_transaction": None,
        "failure_code": failure.get("code"),
        "failure_message": failure.get("message"),
        "fraud_details": {},
        "livemode": False,
        "metadata": charge.metadata,
        "on_behalf_of": None,
        "outcome": _show_outcome(charge),
        "paid": charge.status == "succeeded",
        "payment_intent": charge.payment_intent,
        "payment_method": charge.payment_method,
        "payment_method_details": None if method is None else _show_charged_with(charge, method),
        "radar_options": {},
        "receipt_email": texts.get("receipt_email"),
        "receipt_number": None,
        "receipt_url": None,
        "refunded": refunded,
        "review": None,
        "shipping": (charge.hashes or {}).get("shipping"),
        "source_transfer": None,
        "statement_descriptor": texts.get("statement_descriptor"),
        "statement_descriptor_suffix": texts.get("statement_descriptor_suffix"),
        "status": charge.status,
        "transfer_data": None,
        "transfer_group": texts.get("transfer_group"),
    }


def _show_descriptor(charge: Charge) -> str | None:
    if charge.status == "failed":
        return None
    suffix = (charge.texts or {}).get("statement_descriptor_suffix")
    return f"SIMULATED* {suffix}"[:22] if suffix else "SIMULATED"


def _show_charged_with(charge: Charge, method: PaymentMethod) -> Json:
    kind = behaviour_of(method.documented_id).kind
    details = {name: value for name, value in show_details(method).items() if name not in _NOT_ON_CHARGE}
    if kind == "card":
        details |= _CARD_EXTRAS
        details["amount_authorized"] = charge.amount if charge.status == "succeeded" else None
        details["network"] = details["brand"]
        details["overcapture"] = {"maximum_amount_capturable": charge.amount, "status": "unavailable"}
    elif kind == "us_bank_account":
        details |= {"mandate": None, "payment_reference": None}
    else:
        details["mandate"] = None
        details.pop("generated_from", None)
    return {kind: details, "type": kind}


def _show_outcome(charge: Charge) -> Json | None:
    failure = charge.failure
    if failure is None:
        return _APPROVED
    return {
        "advice_code": failure.get("advice_code"),
        "network_advice_code": None,
        "network_decline_code": failure.get("network_decline_code"),
        "network_status": "declined_by_network",
        "reason": failure.get("decline_code") or failure.get("code"),
        "risk_level": "normal",
        "risk_score": 5,
        "seller_message": "The bank did not return any further details with this decline.",
        "type": "issuer_declined",
    }
