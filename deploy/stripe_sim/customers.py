"""/v1/customers and /v1/account."""

from deploy.stripe_sim.errors import bad_request, missing_object
from deploy.stripe_sim.forms import (
    Params,
    merge_metadata,
    refuse_unknown,
    take_choice,
    take_hash,
    take_text,
)
from deploy.stripe_sim.hashes import ADDRESS, take_hashes
from deploy.stripe_sim.objects import Customer
from deploy.stripe_sim.paging import show_list, take_page
from deploy.stripe_sim.payment_methods import attach_to, detach_from, find_usable
from deploy.stripe_sim.shapes import Json, show_account, show_customer
from deploy.stripe_sim.simulator import Call

TEXTS = ("description", "email", "name", "phone")
_HASHES = {"address": ADDRESS, "shipping": {"address": ADDRESS, "name": None, "phone": None}}
UPDATE_PARAMS = frozenset({*TEXTS, *_HASHES, "tax_exempt", "metadata", "invoice_settings", "expand"})
CREATE_PARAMS = UPDATE_PARAMS | {"payment_method"}
_INVOICE_SETTINGS = frozenset({"default_payment_method"})


def retrieve_account(call: Call) -> Json:
    """GET /v1/account."""
    return show_account(call.account.id)


def create_customer(call: Call) -> Json:
    """POST /v1/customers."""
    texts, metadata = _take_texts(call.params, {}), merge_metadata(call.params, {})
    hashes = take_hashes(call.params, _HASHES, None)
    method_id = take_text(call.params, "payment_method")
    method = None if method_id is None else find_usable(call, method_id)
    default_id = _take_default(call.params)
    if default_id is not None and default_id != method_id:
        raise bad_request(
            "The default payment method must be attached to the customer.",
            param="invoice_settings[default_payment_method]",
        )
    shelf = call.account.customers
    seq = shelf.next_seq()
    cause = call.cause()
    customer = Customer(call.new_id("cus", seq), seq, int(cause.at), metadata, texts, hashes=hashes)
    if method is not None:
        attached = attach_to(cause, method, customer.id)
        customer.default_payment_method = attached.id if default_id is not None else None
    shelf.add(customer)
    cause.announce("customer.created", customer)
    return show_customer(customer)


def retrieve_customer(call: Call) -> Json:
    """GET /v1/customers/{id}; a deleted one is a stub."""
    return show_customer(find_customer(call, call.ids[0], or_deleted=True))


def update_customer(call: Call) -> Json:
    """POST /v1/customers/{id}."""
    customer = find_customer(call, call.ids[0])
    texts, metadata = _take_texts(call.params, customer.texts), merge_metadata(call.params, customer.metadata)
    hashes, default_id = take_hashes(call.params, _HASHES, customer.hashes), _take_default(call.params)
    before = show_customer(customer)
    if default_id is not None:
        method = call.account.payment_methods.by_id.get(default_id)
        if method is None or method.customer != customer.id:
            message = f"The customer does not have a payment method with the ID {default_id}. "
            raise bad_request(
                message + "The payment method must be attached to the customer.",
                code="resource_missing",
                param="invoice_settings[default_payment_method]",
            )
        customer.default_payment_method = default_id
    customer.texts, customer.metadata, customer.hashes = texts, metadata, hashes
    call.account.customers.save(customer)
    shown = show_customer(customer)
    previous = {name: value for name, value in before.items() if shown[name] != value}
    call.cause().announce("customer.updated", customer, previous)
    return shown


def delete_customer(call: Call) -> Json:
    """DELETE /v1/customers/{id}: its payment methods are detached, its payments stay."""
    customer = find_customer(call, call.ids[0])
    cause = call.cause()
    for method in list(call.account.payment_methods.by_customer.get(customer.id, ())):
        detach_from(cause, method)
    cause.announce("customer.deleted", customer)
    customer.deleted, customer.default_payment_method = True, None
    call.account.customers.save(customer)
    return show_customer(customer)


def list_customers(call: Call) -> Json:
    """GET /v1/customers."""
    shelf = call.account.customers
    email = take_text(call.params, "email")

    def accept(customer: Customer) -> bool:
        return not customer.deleted and email in {None, customer.texts.get("email")}

    page, has_more = take_page(call.params, shelf, shelf.in_order, "customer", accept=accept)
    return show_list("/v1/customers", [show_customer(customer) for customer in page], has_more=has_more)


def find_customer(
    call: Call, customer_id: str, *, param: str = "id", status: int = 404, or_deleted: bool = False
) -> Customer:
    """Return a customer of the account, or raise `resource_missing`."""
    customer = call.account.customers.by_id.get(customer_id)
    if customer is None or (customer.deleted and not or_deleted):
        raise missing_object("customer", customer_id, param=param, status=status)
    return customer


def _take_texts(params: Params, before: dict[str, str]) -> dict[str, str]:
    texts = dict(before)
    for name in TEXTS:
        if name in params:
            text = take_text(params, name)
            if text is None:
                texts.pop(name, None)
            else:
                texts[name] = text
    exempt = take_choice(params, "tax_exempt", ("none", "exempt", "reverse"))
    if exempt is not None:
        texts["tax_exempt"] = exempt
    return texts


def _take_default(params: Params) -> str | None:
    invoice_settings = take_hash(params, "invoice_settings")
    refuse_unknown(invoice_settings, _INVOICE_SETTINGS, inside="invoice_settings")
    return take_text(invoice_settings, "default_payment_method")
