"""/v1/charges."""

from collections.abc import Sequence
from typing import Final

from deploy.stripe_sim.captures import capture_charge
from deploy.stripe_sim.errors import bad_request, missing_object
from deploy.stripe_sim.forms import merge_metadata, take_text
from deploy.stripe_sim.objects import Charge
from deploy.stripe_sim.paging import show_list, take_page
from deploy.stripe_sim.rendering import render
from deploy.stripe_sim.shapes import Json
from deploy.stripe_sim.simulator import Call

UPDATE_PARAMS: Final = frozenset(
    {"customer", "description", "metadata", "receipt_email", "transfer_group", "expand"}
)
CAPTURE_PARAMS: Final = frozenset({"amount", "receipt_email", "statement_descriptor_suffix", "expand"})
_TEXTS: Final = ("receipt_email", "transfer_group")


def retrieve_charge(call: Call) -> Json:
    """GET /v1/charges/{id}."""
    return render(call.account, _find(call))


def update_charge(call: Call) -> Json:
    """POST /v1/charges/{id}."""
    charge = _find(call)
    metadata = merge_metadata(call.params, charge.metadata)
    texts = {name: text for name in _TEXTS if (text := take_text(call.params, name)) is not None}
    description = (
        take_text(call.params, "description") if "description" in call.params else charge.description
    )
    customer_id = take_text(call.params, "customer")
    if customer_id not in {None, charge.customer}:
        message = (
            "You cannot change the customer of a charge that has one, or that belongs to a PaymentIntent."
        )
        raise bad_request(message, param="customer")
    before = {"metadata": charge.metadata, "description": charge.description}
    charge.metadata, charge.description = metadata, description
    charge.texts = {**(charge.texts or {}), **texts} or None
    call.account.charges.save(charge)
    call.cause().announce("charge.updated", charge, before)
    return render(call.account, charge)


def capture_by_charge(call: Call) -> Json:
    """POST /v1/charges/{id}/capture."""
    charge = _find(call)
    capture_charge(call, charge)
    return render(call.account, charge)


def list_charges(call: Call) -> Json:
    """GET /v1/charges."""
    shelf = call.account.charges
    intent_id, customer_id = take_text(call.params, "payment_intent"), take_text(call.params, "customer")
    group = take_text(call.params, "transfer_group")
    if intent_id is not None:
        intent = call.account.intents.by_id.get(intent_id)
        if intent is None:
            raise missing_object("payment_intent", intent_id, param="payment_intent", status=400)
        items: Sequence[Charge] = [shelf.by_id[charge_id] for charge_id in intent.charges]
        items = [charge for charge in items if customer_id in {None, charge.customer}]
    elif customer_id is not None:
        items = shelf.by_customer.get(customer_id, [])
    else:
        items = shelf.in_order
    page, has_more = take_page(
        call.params,
        shelf,
        items,
        "charge",
        accept=None if group is None else lambda charge: (charge.texts or {}).get("transfer_group") == group,
    )
    shown = [render(call.account, charge) for charge in page]
    return show_list("/v1/charges", shown, has_more=has_more)


def _find(call: Call) -> Charge:
    charge = call.account.charges.by_id.get(call.ids[0])
    if charge is None:
        raise missing_object("charge", call.ids[0], param="id")
    return charge
