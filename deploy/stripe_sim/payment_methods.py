"""/v1/payment_methods and a customer's payment methods."""

from collections.abc import Sequence
from typing import Final

from deploy.stripe_sim.behaviours import BEHAVIOURS, behaviour_of
from deploy.stripe_sim.errors import ApiError, bad_request, missing_object
from deploy.stripe_sim.forms import (
    Params,
    merge_metadata,
    need_text,
    refuse_unknown,
    take_hash,
    take_integer,
    take_text,
)
from deploy.stripe_sim.hashes import BILLING, take_hashes
from deploy.stripe_sim.objects import PaymentMethod
from deploy.stripe_sim.paging import show_list, take_page
from deploy.stripe_sim.shapes import Json, show_payment_method
from deploy.stripe_sim.simulator import Call, Cause
from deploy.stripe_sim.store import AccountData
from deploy.stripe_sim.tokens import find_test_method

CREATE_PARAMS: Final = frozenset(
    {"type", "card", "us_bank_account", "sepa_debit", "billing_details", "metadata", "expand"}
)
UPDATE_PARAMS: Final = frozenset({"billing_details", "card", "metadata", "expand"})
_LAYOUTS: Final = {"billing_details": BILLING}
_EXPIRY: Final = frozenset({"exp_month", "exp_year"})


def create_method(call: Call) -> Json:
    """POST /v1/payment_methods, from test tokens and test account numbers."""
    documented_id = find_test_method(need_text(call.params, "type"), call.params)
    metadata = merge_metadata(call.params, {})
    billing = _take_billing(call.params, None)
    seq = call.account.payment_methods.next_seq()
    method = PaymentMethod(
        call.new_id("pm", seq), seq, int(call.now), documented_id, metadata=metadata, billing=billing
    )
    call.account.payment_methods.add(method)
    return show_payment_method(method)


def retrieve_method(call: Call) -> Json:
    """GET /v1/payment_methods/{id}."""
    return show_payment_method(_find(call, call.ids[0]))


def retrieve_customer_method(call: Call) -> Json:
    """GET /v1/customers/{id}/payment_methods/{id}."""
    _check_customer(call, call.ids[0], param="customer", status=404)
    method = call.account.payment_methods.by_id.get(call.ids[1])
    if method is None or method.customer != call.ids[0]:
        raise missing_object("PaymentMethod", call.ids[1], param="payment_method")
    return show_payment_method(method)


def update_method(call: Call) -> Json:
    """POST /v1/payment_methods/{id}: only one that is attached can be changed."""
    method = _find(call, call.ids[0])
    metadata = merge_metadata(call.params, method.metadata)
    billing = _take_billing(call.params, method.billing)
    card = take_hash(call.params, "card")
    refuse_unknown(card, _EXPIRY, inside="card")
    expiry = {name: number for name in card if (number := take_integer(card, name)) is not None}
    if method.customer is None:
        message = "You must save this PaymentMethod to a customer before you can update it."
        raise bad_request(message, code="payment_method_unexpected_state")
    before = show_payment_method(method)
    method.metadata, method.billing = metadata, billing
    method.card = {**(method.card or {}), **expiry} or None
    call.account.payment_methods.save(method)
    shown = show_payment_method(method)
    previous = {name: value for name, value in before.items() if shown[name] != value}
    call.cause().announce("payment_method.updated", method, previous)
    return shown


def attach_method(call: Call) -> Json:
    """POST /v1/payment_methods/{id}/attach."""
    customer_id = need_text(call.params, "customer")
    _check_customer(call, customer_id, param="customer", status=400)
    method = find_usable(call, call.ids[0], param="payment_method", status=404)
    if method.customer not in {None, customer_id}:
        raise bad_request(
            "The payment method you provided has already been attached to a customer.",
            code="payment_method_unexpected_state",
        )
    behaviour = behaviour_of(method.documented_id)
    if not behaviour.attachable:
        raise ApiError(
            402,
            behaviour.message,
            kind="card_error",
            code=behaviour.code,
            decline_code=behaviour.decline_code,
            advice_code=behaviour.advice_code,
            executed=True,
        )
    return show_payment_method(attach_to(call.cause(), method, customer_id))


def detach_method(call: Call) -> Json:
    """POST /v1/payment_methods/{id}/detach: for good."""
    method = _find(call, call.ids[0])
    if method.customer is None:
        message = "The payment method you provided is not attached to a customer so detachment is impossible."
        raise bad_request(message, code="payment_method_unexpected_state")
    owner = call.account.customers.by_id.get(method.customer)
    if owner is not None and owner.default_payment_method == method.id:
        owner.default_payment_method = None
        call.account.customers.save(owner)
    detach_from(call.cause(), method)
    return show_payment_method(method)


def list_methods(call: Call) -> Json:
    """GET /v1/payment_methods?customer=... (only those of a customer, as at Stripe)."""
    return _list(call, take_text(call.params, "customer"), "/v1/payment_methods")


def list_customer_methods(call: Call) -> Json:
    """GET /v1/customers/{id}/payment_methods."""
    customer_id = call.ids[0]
    _check_customer(call, customer_id, param="customer", status=404)
    return _list(call, customer_id, f"/v1/customers/{customer_id}/payment_methods")


def find_usable(
    call: Call, method_id: str, *, param: str = "payment_method", status: int = 400
) -> PaymentMethod:
    """Return a payment method to attach or pay with.

    A documented test id stands for a new payment method each time it is used; it is kept when it is
    `keep`-ed.
    """
    method = call.account.payment_methods.by_id.get(method_id)
    if method is not None:
        if method.detached:
            message = (
                "This PaymentMethod was previously used without being attached to a Customer or was detached "
                "from a Customer, and may not be used again."
            )
            raise bad_request(message, code="payment_method_unexpected_state", param=param)
        return method
    if method_id not in BEHAVIOURS:
        raise missing_object("PaymentMethod", method_id, param=param, status=status)
    seq = call.account.payment_methods.next_seq()
    return PaymentMethod(call.new_id("pm", seq), seq, int(call.now), documented_id=method_id)


def keep(account: AccountData, method: PaymentMethod) -> None:
    """Put a payment method on the shelf, if it is new, and write down its state."""
    shelf = account.payment_methods
    if method.id in shelf.by_id:
        shelf.save(method)
    else:
        shelf.add(method)


def attach_to(cause: Cause, method: PaymentMethod, customer_id: str) -> PaymentMethod:
    """Attach a payment method to a customer."""
    if method.customer is None:
        method.customer = customer_id
        if method.id in cause.account.payment_methods.by_id:
            cause.account.payment_methods.index_customer(method)
        keep(cause.account, method)
        cause.announce("payment_method.attached", method)
    return method


def detach_from(cause: Cause, method: PaymentMethod) -> None:
    """Detach a payment method; the customer's list leaves it out from now on."""
    before = {"customer": method.customer}
    if method.customer is not None:
        cause.account.payment_methods.unindex_customer(method, method.customer)
    method.customer, method.detached = None, True
    cause.account.payment_methods.save(method)
    cause.announce("payment_method.detached", method, before)


def _take_billing(params: Params, before: Json | None) -> Json | None:
    hashes = take_hashes(params, _LAYOUTS, None if before is None else {"billing_details": before})
    return None if hashes is None else hashes.get("billing_details")


def _find(call: Call, method_id: str) -> PaymentMethod:
    method = call.account.payment_methods.by_id.get(method_id)
    if method is None:
        raise missing_object("PaymentMethod", method_id, param="payment_method")
    return method


def _check_customer(call: Call, customer_id: str, *, param: str, status: int) -> None:
    customer = call.account.customers.by_id.get(customer_id)
    if customer is None or customer.deleted:
        raise missing_object("customer", customer_id, param=param, status=status)


def _list(call: Call, customer_id: str | None, url: str) -> Json:
    shelf = call.account.payment_methods
    items: Sequence[PaymentMethod] = [] if customer_id is None else shelf.by_customer.get(customer_id, [])
    kind = take_text(call.params, "type")

    page, has_more = take_page(
        call.params,
        shelf,
        items,
        "PaymentMethod",
        accept=lambda method: kind in {None, behaviour_of(method.documented_id).kind},
    )
    return show_list(url, [show_payment_method(method) for method in page], has_more=has_more)
