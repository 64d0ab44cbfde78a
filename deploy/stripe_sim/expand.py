"""`expand[]`: which fields can become objects, checked before anything is executed, and how they do."""

from typing import Any, Final

from deploy.stripe_sim.errors import ApiError, bad_request
from deploy.stripe_sim.forms import take_list
from deploy.stripe_sim.paging import show_list
from deploy.stripe_sim.rendering import render
from deploy.stripe_sim.shapes import Json
from deploy.stripe_sim.shapes_of_money import show_transaction
from deploy.stripe_sim.simulator import Call

# docs.stripe.com/expand: "expansions have a maximum depth of four levels".
DEPTH_MAX: Final = 4
REFUNDS_SHOWN_MAX: Final = 10
TOTAL_COUNT: Final = "total_count"
_NEVER: Final = "nothing"
# Per kind of object its expandable fields and what they hold; `nothing` is always null here.
_FIELDS: Final[dict[str, dict[str, str]]] = {
    "customer": {"invoice_settings": "invoice_settings", "default_source": _NEVER, "test_clock": _NEVER},
    "invoice_settings": {"default_payment_method": "payment_method"},
    "payment_method": {"customer": "customer"},
    "payment_intent": {
        "customer": "customer",
        "payment_method": "payment_method",
        "latest_charge": "charge",
        **dict.fromkeys(("application", "on_behalf_of", "review", "source"), _NEVER),
    },
    "charge": {
        "customer": "customer",
        "payment_intent": "payment_intent",
        "balance_transaction": "balance_transaction",
        "failure_balance_transaction": "balance_transaction",
        "refunds": "refunds",
        **dict.fromkeys(("application", "application_fee", "on_behalf_of", "review"), _NEVER),
        **dict.fromkeys(("source_transfer", "transfer"), _NEVER),
    },
    "refunds": {"data": "refund"},
    "refund": {
        "charge": "charge",
        "payment_intent": "payment_intent",
        "balance_transaction": "balance_transaction",
        "failure_balance_transaction": "balance_transaction",
        **dict.fromkeys(("source_transfer_reversal", "transfer_reversal"), _NEVER),
    },
    "dispute": {"charge": "charge", "payment_intent": "payment_intent"},
    "balance_transaction": {"source": "source"},
    # A balance transaction's source is a charge, a refund or a dispute.
    "source": {"charge": "charge", "payment_intent": "payment_intent", "customer": "customer"},
}
_BY_PREFIX: Final = {"ch": "charge", "re": "refund", "du": "dispute"}


def check_expand(call: Call, kind: str, *, is_list: bool) -> None:
    """Refuse what cannot be expanded in an answer of this kind, before the request is executed."""
    for name in take_list(call.params, "expand"):
        steps = name.split(".")
        if name == TOTAL_COUNT and is_list:
            continue
        if len(steps) > DEPTH_MAX:
            message = f"You cannot expand more than {DEPTH_MAX} levels of a property (`{name}`)."
            raise bad_request(message, param="expand")
        if is_list and (steps.pop(0) != "data" or not steps):
            raise _refused(name)
        held = kind
        for step in steps:
            if step not in _FIELDS.get(held, {}):
                raise _refused(name)
            held = _FIELDS[held][step]


def expand(call: Call, shown: Json, kind: str) -> None:
    """Replace ids by objects where the request asks for it; what it asks for was checked before."""
    for name in take_list(call.params, "expand"):
        steps = name.split(".")
        if name == TOTAL_COUNT:
            continue
        if isinstance(shown.get("data"), list):
            for item in shown["data"]:
                _expand_steps(call, item, kind, steps[1:])
        else:
            _expand_steps(call, shown, kind, steps)


def _expand_steps(call: Call, node: Any, kind: str, steps: list[str]) -> None:
    if not steps or not isinstance(node, dict):
        return
    step, rest = steps[0], steps[1:]
    held = _FIELDS.get(kind, {}).get(step)
    if held is None:
        return
    if held == "refunds":
        if not isinstance(node.get(step), dict):
            node[step] = _list_refunds(call, node["id"])
    elif isinstance(node.get(step), list):
        for item in node[step]:
            _expand_steps(call, item, held, rest)
        return
    elif isinstance(node.get(step), str):
        held, node[step] = _show(call, held, node[step])
    elif isinstance(node.get(step), dict):
        # What is spliced into answers may be one object for all: never write into it.
        node[step] = dict(node[step])
        held = node[step].get("object", held)
    _expand_steps(call, node.get(step), held, rest)


def _show(call: Call, held: str, object_id: str) -> tuple[str, Json]:
    if held == "source":
        held = _BY_PREFIX[object_id.partition("_")[0]]
    if held != "balance_transaction":
        return held, render(call.account, call.account.shelf(held).by_id[object_id])
    entry = call.account.ledger.find(object_id)
    if entry is None:
        raise _refused(object_id)
    return held, show_transaction(entry, call.now)


def _list_refunds(call: Call, charge_id: str) -> Json:
    charge = call.account.charges.by_id[charge_id]
    newest = [call.account.refunds.by_id[entry] for entry in reversed(charge.refunds or [])]
    shown = [render(call.account, refund) for refund in newest[:REFUNDS_SHOWN_MAX]]
    has_more = len(newest) > REFUNDS_SHOWN_MAX
    return show_list(f"/v1/charges/{charge_id}/refunds", shown, has_more=has_more)


def _refused(name: str) -> ApiError:
    return bad_request(f"This property cannot be expanded ({name}).", param="expand")
