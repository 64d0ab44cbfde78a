"""Stripe's JSON, from what the simulator remembers."""

from typing import Any

from deploy.stripe_sim.behaviours import behaviour_of
from deploy.stripe_sim.objects import Charge, Customer, PaymentIntent, PaymentMethod

Json = dict[str, Any]

_NO_ADDRESS = dict.fromkeys(("city", "country", "line1", "line2", "postal_code", "state"))
_NO_BILLING = {"address": _NO_ADDRESS, "email": None, "name": None, "phone": None, "tax_id": None}


def show_account(account_id: str) -> Json:
    """Return an account that can charge."""
    return {
        "id": account_id,
        "object": "account",
        "business_profile": {"mcc": None, "name": "Simulated", "support_email": None, "url": None},
        "business_type": "company",
        "capabilities": {"card_payments": "active", "transfers": "active"},
        "charges_enabled": True,
        "controller": {"type": "account"},
        "country": "US",
        "default_currency": "usd",
        "details_submitted": True,
        "email": None,
        "metadata": {},
        "payouts_enabled": True,
        "type": "standard",
    }


def show_customer(customer: Customer) -> Json:
    """Return a customer."""
    texts = customer.texts
    return {
        "id": customer.id,
        "object": "customer",
        "address": None,
        "balance": 0,
        "created": customer.created,
        "currency": None,
        "customer_account": None,
        "default_source": None,
        "delinquent": False,
        "description": texts.get("description"),
        "discount": None,
        "email": texts.get("email"),
        "invoice_prefix": customer.id[-8:].upper(),
        "invoice_settings": {
            "custom_fields": None,
            "default_payment_method": customer.default_payment_method,
            "footer": None,
            "rendering_options": None,
        },
        "livemode": False,
        "metadata": customer.metadata,
        "name": texts.get("name"),
        "next_invoice_sequence": 1,
        "phone": texts.get("phone"),
        "preferred_locales": [],
        "shipping": None,
        "tax_exempt": "none",
        "test_clock": None,
    }


def show_payment_method(method: PaymentMethod) -> Json:
    """Return a payment method with the details of its kind."""
    behaviour = behaviour_of(method.documented_id)
    return {
        "id": method.id,
        "object": "payment_method",
        "allow_redisplay": "unspecified",
        "billing_details": _NO_BILLING,
        behaviour.kind: _show_details(method),
        "created": method.created,
        "customer": method.customer,
        "customer_account": None,
        "livemode": False,
        "metadata": method.metadata,
        "type": behaviour.kind,
    }


def _show_details(method: PaymentMethod) -> Json:
    behaviour = behaviour_of(method.documented_id)
    if behaviour.kind == "us_bank_account":
        return {
            "account_holder_type": "individual",
            "account_type": "checking",
            "bank_name": "STRIPE TEST BANK",
            "financial_connections_account": None,
            "fingerprint": None,
            "last4": behaviour.last4,
            "networks": {"preferred": "ach", "supported": ["ach"]},
            "routing_number": "110000000",
            "status_details": None,
        }
    if behaviour.kind == "sepa_debit":
        return {
            "bank_code": "37040044",
            "branch_code": "",
            "country": behaviour.country,
            "fingerprint": None,
            "generated_from": {"charge": None, "setup_attempt": None},
            "last4": behaviour.last4,
        }
    return {
        "brand": behaviour.brand,
        "checks": {"address_line1_check": None, "address_postal_code_check": None, "cvc_check": "pass"},
        "country": behaviour.country,
        "display_brand": behaviour.brand,
        "exp_month": 12,
        "exp_year": 2040,
        "fingerprint": None,
        "funding": "credit",
        "generated_from": None,
        "last4": behaviour.last4,
        "networks": {"available": [behaviour.brand], "preferred": None},
        "regulated_status": "unregulated",
        "three_d_secure_usage": {"supported": True},
        "wallet": None,
    }


def show_payment_intent(intent: PaymentIntent) -> Json:
    """Return a PaymentIntent."""
    texts = intent.texts or {}
    succeeded = intent.status == "succeeded"
    types = intent.payment_method_types
    return {
        "id": intent.id,
        "object": "payment_intent",
        "amount": intent.amount,
        "amount_capturable": intent.amount if intent.status == "requires_capture" else 0,
        "amount_details": {"tip": {}},
        "amount_received": intent.amount if succeeded else 0,
        "application": None,
        "application_fee_amount": None,
        "automatic_payment_methods": None if types else {"allow_redirects": "always", "enabled": True},
        "canceled_at": intent.canceled_at,
        "cancellation_reason": intent.cancellation_reason,
        "capture_method": intent.capture_method,
        "client_secret": intent.client_secret,
        "confirmation_method": intent.confirmation_method,
        "created": intent.created,
        "currency": intent.currency,
        "customer": intent.customer,
        "customer_account": None,
        "description": texts.get("description"),
        "excluded_payment_method_types": None,
        "last_payment_error": intent.last_payment_error,
        "latest_charge": intent.charges[-1] if intent.charges else None,
        "livemode": False,
        "metadata": intent.metadata,
        "next_action": intent.next_action,
        "on_behalf_of": None,
        "payment_method": intent.payment_method,
        "payment_method_configuration_details": None,
        "payment_method_options": {},
        "payment_method_types": types or ["card"],
        "processing": None,
        "receipt_email": texts.get("receipt_email"),
        "review": None,
        "setup_future_usage": texts.get("setup_future_usage"),
        "shipping": None,
        "source": None,
        "statement_descriptor": texts.get("statement_descriptor"),
        "statement_descriptor_suffix": texts.get("statement_descriptor_suffix"),
        "status": intent.status,
        "transfer_data": None,
        "transfer_group": texts.get("transfer_group"),
    }


def show_charge(charge: Charge, method: PaymentMethod | None) -> Json:
    """Return a charge; `method` gives the details of what it was paid with."""
    failure = charge.failure or {}
    return {
        "id": charge.id,
        "object": "charge",
        "amount": charge.amount,
        "amount_captured": charge.amount if charge.status == "succeeded" and charge.captured else 0,
        "amount_refunded": 0,
        "application": None,
        "application_fee": None,
        "application_fee_amount": None,
        "balance_transaction": None,
        "billing_details": _NO_BILLING,
        "calculated_statement_descriptor": None,
        "captured": charge.captured and charge.status == "succeeded",
        "created": charge.created,
        "currency": charge.currency,
        "customer": charge.customer,
        "description": charge.description,
        "disputed": False,
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
        "payment_method_details": _show_charged_with(method),
        "radar_options": {},
        "receipt_email": None,
        "receipt_number": None,
        "receipt_url": None,
        "refunded": False,
        "review": None,
        "shipping": None,
        "source_transfer": None,
        "statement_descriptor": None,
        "statement_descriptor_suffix": None,
        "status": charge.status,
        "transfer_data": None,
        "transfer_group": None,
    }


def _show_charged_with(method: PaymentMethod | None) -> Json | None:
    if method is None:
        return None
    kind = behaviour_of(method.documented_id).kind
    return {kind: _show_details(method), "type": kind}


def _show_outcome(charge: Charge) -> Json | None:
    failure = charge.failure
    if failure is None:
        return {
            "advice_code": None,
            "network_advice_code": None,
            "network_decline_code": None,
            "network_status": "approved_by_network",
            "reason": None,
            "risk_level": "normal",
            "seller_message": "Payment complete.",
            "type": "authorized",
        }
    return {
        "advice_code": failure.get("advice_code"),
        "network_advice_code": None,
        "network_decline_code": failure.get("network_decline_code"),
        "network_status": "declined_by_network",
        "reason": failure.get("decline_code") or failure.get("code"),
        "risk_level": "normal",
        "seller_message": "The bank did not return any further details with this decline.",
        "type": "issuer_declined",
    }
