"""/v1/payment_methods and a customer's payment methods."""

from collections.abc import Sequence

from deploy.stripe_sim.behaviours import BEHAVIOURS, behaviour_of
from deploy.stripe_sim.errors import ApiError, bad_request, missing_object
from deploy.stripe_sim.forms import need_text, take_text
from deploy.stripe_sim.objects import PaymentMethod
from deploy.stripe_sim.paging import show_list, take_page
from deploy.stripe_sim.shapes import Json, show_payment_method
from deploy.stripe_sim.simulator import Call


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
    return show_payment_method(attach_to(call, method, customer_id))


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


def attach_to(call: Call, method: PaymentMethod, customer_id: str) -> PaymentMethod:
    """Attach a payment method to a customer for good."""
    if method.customer is None:
        method.customer = customer_id
        if method.id in call.account.payment_methods.by_id:
            call.account.payment_methods.index_customer(method)
        keep(call, method)
    return method


def _find(call: Call, method_id: str) -> PaymentMethod:
    method = call.account.payment_methods.by_id.get(method_id)
    if method is None:
        raise missing_object("PaymentMethod", method_id, param="payment_method")
    return method


def _check_customer(call: Call, customer_id: str, *, param: str, status: int) -> None:
    if customer_id not in call.account.customers.by_id:
        raise missing_object("customer", customer_id, param=param, status=status)


def _list(call: Call, customer_id: str | None, url: str) -> Json:
    shelf = call.account.payment_methods
    items: Sequence[PaymentMethod] = [] if customer_id is None else shelf.by_customer.get(customer_id, [])
    kind = take_text(call.params, "type")
    if kind is not None:
        items = [method for method in items if behaviour_of(method.documented_id).kind == kind]
    page, has_more = take_page(call.params, shelf, items, "PaymentMethod")
    return show_list(url, [show_payment_method(method) for method in page], has_more=has_more)
