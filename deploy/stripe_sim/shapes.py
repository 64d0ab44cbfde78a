"""Stripe's JSON, from what the simulator remembers."""

from typing import Any

from deploy.stripe_sim.behaviours import behaviour_of
from deploy.stripe_sim.objects import Customer, PaymentIntent, PaymentMethod

Json = dict[str, Any]

_NO_ADDRESS = dict.fromkeys(("city", "country", "line1", "line2", "postal_code", "state"))
_AUTOMATIC = {"allow_redirects": "always", "enabled": True}
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
    texts, hashes = customer.texts, customer.hashes or {}
    if customer.deleted:
        return {"id": customer.id, "object": "customer", "deleted": True}
    return {
        "id": customer.id,
        "object": "customer",
        "address": hashes.get("address"),
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
        "shipping": hashes.get("shipping"),
        "tax_exempt": texts.get("tax_exempt", "none"),
        "test_clock": None,
    }


def show_payment_method(method: PaymentMethod) -> Json:
    """Return a payment method with the details of its kind."""
    behaviour = behaviour_of(method.documented_id)
    return {
        "id": method.id,
        "object": "payment_method",
        "allow_redisplay": "unspecified",
        "billing_details": show_billing(method),
        behaviour.kind: show_details(method),
        "created": method.created,
        "customer": method.customer,
        "customer_account": None,
        "livemode": False,
        "metadata": method.metadata,
        "type": behaviour.kind,
    }


def show_billing(method: PaymentMethod | None) -> Json:
    """Return the billing details of a payment method, all empty unless given."""
    billing = None if method is None else method.billing
    if not billing:
        return _NO_BILLING
    return {**_NO_BILLING, **billing, "address": {**_NO_ADDRESS, **billing.get("address", {})}}


def show_details(method: PaymentMethod) -> Json:
    """Return what is particular to a payment method's kind."""
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
    card = method.card or {}
    return {
        "brand": behaviour.brand,
        "checks": {"address_line1_check": None, "address_postal_code_check": None, "cvc_check": "pass"},
        "country": behaviour.country,
        "display_brand": behaviour.brand,
        "exp_month": card.get("exp_month", 12),
        "exp_year": card.get("exp_year", 2040),
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
    texts, hashes = intent.texts or {}, intent.hashes or {}
    received = intent.amount if intent.received is None else intent.received
    types = intent.payment_method_types
    return {
        "id": intent.id,
        "object": "payment_intent",
        "amount": intent.amount,
        "amount_capturable": intent.amount if intent.status == "requires_capture" else 0,
        "amount_details": {"tip": {}},
        "amount_received": received if intent.status == "succeeded" else 0,
        "application": None,
        "application_fee_amount": None,
        "automatic_payment_methods": None if types else hashes.get("automatic_payment_methods", _AUTOMATIC),
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
        "payment_method_options": hashes.get("payment_method_options", {}),
        "payment_method_types": types or ["card"],
        "processing": None,
        "receipt_email": texts.get("receipt_email"),
        "review": None,
        "setup_future_usage": texts.get("setup_future_usage"),
        "shipping": hashes.get("shipping"),
        "source": None,
        "statement_descriptor": texts.get("statement_descriptor"),
        "statement_descriptor_suffix": texts.get("statement_descriptor_suffix"),
        "status": intent.status,
        "transfer_data": None,
        "transfer_group": texts.get("transfer_group"),
    }
