"""`expand[]` for the fields that hold an id of something the simulator has."""

from collections.abc import Callable
from typing import Any, Final

from deploy.stripe_sim.errors import bad_request
from deploy.stripe_sim.forms import take_list
from deploy.stripe_sim.shapes import (
    Json,
    show_charge,
    show_customer,
    show_payment_intent,
    show_payment_method,
)
from deploy.stripe_sim.simulator import Call


def _show_one_charge(call: Call, object_id: str) -> Json:
    charge = call.account.charges.by_id[object_id]
    return show_charge(charge, call.account.payment_methods.by_id.get(charge.payment_method))


_EXPANDABLE: Final[dict[str, Callable[[Call, str], Json]]] = {
    "customer": lambda call, object_id: show_customer(call.account.customers.by_id[object_id]),
    "payment_method": lambda call, object_id: show_payment_method(
        call.account.payment_methods.by_id[object_id]
    ),
    "payment_intent": lambda call, object_id: show_payment_intent(call.account.intents.by_id[object_id]),
    "latest_charge": _show_one_charge,
}


def expand(call: Call, shown: Json) -> None:
    """Replace ids by objects where the request asks for it."""
    for name in take_list(call.params, "expand"):
        field = name.removeprefix("data.")
        items: list[Any] = shown["data"] if name.startswith("data.") and "data" in shown else [shown]
        if field not in _EXPANDABLE or any(field not in item for item in items):
            raise bad_request(f"This property cannot be expanded ({name}).", param="expand")
        for item in items:
            if isinstance(item[field], str):
                item[field] = _EXPANDABLE[field](call, item[field])
