"""Which endpoint answers which request, and which parameters it knows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from deploy.stripe_sim import (
    balance,
    captures,
    charges,
    customers,
    disputes,
    endpoints,
    event_routes,
    payment_intents,
    payment_methods,
    refunds,
    search,
)
from deploy.stripe_sim.paging import PAGE_PARAMS
from deploy.stripe_sim.shapes import Json
from deploy.stripe_sim.simulator import Call
from deploy.stripe_sim.unmodelled import UNMODELLED


@dataclass(frozen=True, slots=True)
class Route:
    """An endpoint; `name` is how rate limits call it.

    `shows` is the kind of object in the answer, or in its list. `unmodelled` are parameters that Stripe has.
    """

    name: str
    answer: Callable[[Call], Json]
    params: frozenset[str]
    unmodelled: frozenset[str]
    shows: str
    is_list: bool


_NOTHING: Final = frozenset({"expand"})
_LIST: Final = PAGE_PARAMS | {"created"}
_OF_PAYMENT: Final = frozenset({"charge", "payment_intent"})
ENDPOINTS: Final[tuple[tuple[str, Callable[[Call], Json], frozenset[str]], ...]] = (
    ("GET account", customers.retrieve_account, _NOTHING),
    ("GET balance", balance.retrieve_balance, _NOTHING),
    (
        "GET balance_transactions",
        balance.list_transactions,
        _LIST | {"type", "source", "currency", "payout"},
    ),
    ("GET balance_transactions/*", balance.retrieve_transaction, _NOTHING),
    ("GET payouts", balance.list_payouts, _LIST | {"arrival_date", "destination", "status"}),
    ("POST customers", customers.create_customer, customers.CREATE_PARAMS),
    ("GET customers", customers.list_customers, _LIST | {"email"}),
    ("GET customers/*", customers.retrieve_customer, _NOTHING),
    ("POST customers/*", customers.update_customer, customers.UPDATE_PARAMS),
    ("DELETE customers/*", customers.delete_customer, frozenset()),
    ("GET customers/*/payment_methods", payment_methods.list_customer_methods, PAGE_PARAMS | {"type"}),
    ("GET customers/*/payment_methods/*", payment_methods.retrieve_customer_method, _NOTHING),
    ("POST payment_methods", payment_methods.create_method, payment_methods.CREATE_PARAMS),
    ("GET payment_methods", payment_methods.list_methods, PAGE_PARAMS | {"type", "customer"}),
    ("GET payment_methods/*", payment_methods.retrieve_method, _NOTHING),
    ("POST payment_methods/*", payment_methods.update_method, payment_methods.UPDATE_PARAMS),
    ("POST payment_methods/*/attach", payment_methods.attach_method, _NOTHING | {"customer"}),
    ("POST payment_methods/*/detach", payment_methods.detach_method, _NOTHING),
    ("POST payment_intents", payment_intents.create_intent, payment_intents.CREATE_PARAMS),
    ("GET payment_intents", payment_intents.list_intents, _LIST | {"customer"}),
    ("GET payment_intents/search", search.search_intents, search.PARAMS),
    ("GET payment_intents/*", payment_intents.retrieve_intent, _NOTHING | {"client_secret"}),
    ("POST payment_intents/*", payment_intents.update_intent, payment_intents.UPDATE_PARAMS),
    ("POST payment_intents/*/confirm", payment_intents.confirm_intent, payment_intents.CONFIRM_PARAMS),
    ("POST payment_intents/*/capture", captures.capture_intent, captures.CAPTURE_PARAMS),
    ("POST payment_intents/*/cancel", payment_intents.cancel_intent, payment_intents.CANCEL_PARAMS),
    ("GET charges", charges.list_charges, _LIST | {"customer", "payment_intent", "transfer_group"}),
    ("GET charges/*", charges.retrieve_charge, _NOTHING),
    ("POST charges/*", charges.update_charge, charges.UPDATE_PARAMS),
    ("POST charges/*/capture", charges.capture_by_charge, charges.CAPTURE_PARAMS),
    ("GET charges/*/refunds", refunds.list_charge_refunds, PAGE_PARAMS),
    ("GET charges/*/refunds/*", refunds.retrieve_charge_refund, _NOTHING),
    ("POST refunds", refunds.create_refund, refunds.CREATE_PARAMS),
    ("GET refunds", refunds.list_refunds, _LIST | _OF_PAYMENT),
    ("GET refunds/*", refunds.retrieve_refund, _NOTHING),
    ("POST refunds/*", refunds.update_refund, refunds.UPDATE_PARAMS),
    ("POST refunds/*/cancel", refunds.cancel_refund, _NOTHING),
    ("GET disputes", disputes.list_disputes, _LIST | _OF_PAYMENT),
    ("GET disputes/*", disputes.retrieve_dispute, _NOTHING),
    ("POST disputes/*", disputes.update_dispute, disputes.UPDATE_PARAMS),
    ("POST disputes/*/close", disputes.close_dispute, _NOTHING),
    ("GET events", event_routes.list_events, _LIST | {"type", "types", "delivery_success"}),
    ("GET events/*", event_routes.retrieve_event, _NOTHING),
    ("POST webhook_endpoints", endpoints.create_endpoint, endpoints.CREATE_PARAMS),
    ("GET webhook_endpoints", endpoints.list_endpoints, PAGE_PARAMS),
    ("GET webhook_endpoints/*", endpoints.retrieve_endpoint, _NOTHING),
    ("POST webhook_endpoints/*", endpoints.update_endpoint, endpoints.UPDATE_PARAMS),
    ("DELETE webhook_endpoints/*", endpoints.delete_endpoint, frozenset()),
)
_VERBS: Final = frozenset({"attach", "detach", "confirm", "capture", "cancel", "close", "search"})


def _make_route(pattern: str, answer: Callable[[Call], Json], params: frozenset[str]) -> Route:
    method, _, path = pattern.partition(" ")
    nouns = [part for part in path.split("/") if part != "*" and part not in _VERBS]
    ends_with_noun = path.endswith((nouns[-1], "search")) and nouns[-1] not in {"account", "balance"}
    return Route(
        name=pattern.replace(" ", " /v1/").replace("*", "{id}"),
        answer=answer,
        params=params,
        unmodelled=UNMODELLED.get(pattern, frozenset()),
        shows=nouns[-1].removesuffix("s"),
        is_list=method == "GET" and ends_with_noun,
    )


_ROUTES: Final = {pattern: _make_route(pattern, answer, params) for pattern, answer, params in ENDPOINTS}


def find_route(method: str, path: str) -> tuple[Route, tuple[str, ...]] | None:
    """Return the endpoint and the ids in the path, or None for an unknown URL."""
    parts = path[4:].split("/")
    literal = _ROUTES.get(f"{method} {'/'.join(parts)}") if len(parts) == 2 else None
    if literal is not None:
        return literal, ()
    ids = tuple(parts[1::2])
    parts[1::2] = ["*"] * len(ids)
    route = _ROUTES.get(f"{method} {'/'.join(parts)}")
    return None if route is None or not all(ids) else (route, ids)
