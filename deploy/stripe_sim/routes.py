"""Which endpoint answers which request, and which parameters it knows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from deploy.stripe_sim import customers, payment_intents, payment_methods
from deploy.stripe_sim.paging import PAGE_PARAMS
from deploy.stripe_sim.shapes import Json
from deploy.stripe_sim.simulator import Call


@dataclass(frozen=True, slots=True)
class Route:
    """An endpoint; `name` is how rate limits call it."""

    name: str
    answer: Callable[[Call], Json]
    params: frozenset[str]


_RETRIEVE: Final = frozenset({"expand"})
_LIST: Final = PAGE_PARAMS | {"created"}
_ENDPOINTS: Final[tuple[tuple[str, Callable[[Call], Json], frozenset[str]], ...]] = (
    ("GET account", customers.retrieve_account, _RETRIEVE),
    ("POST customers", customers.create_customer, customers.CREATE_PARAMS),
    ("GET customers", customers.list_customers, _LIST | {"email"}),
    ("GET customers/*", customers.retrieve_customer, _RETRIEVE),
    ("POST customers/*", customers.update_customer, customers.UPDATE_PARAMS),
    ("GET customers/*/payment_methods", payment_methods.list_customer_methods, PAGE_PARAMS | {"type"}),
    ("GET customers/*/payment_methods/*", payment_methods.retrieve_customer_method, _RETRIEVE),
    ("GET payment_methods", payment_methods.list_methods, PAGE_PARAMS | {"type", "customer"}),
    ("GET payment_methods/*", payment_methods.retrieve_method, _RETRIEVE),
    ("POST payment_methods/*/attach", payment_methods.attach_method, frozenset({"customer", "expand"})),
    ("POST payment_intents", payment_intents.create_intent, payment_intents.CREATE_PARAMS),
    ("GET payment_intents", payment_intents.list_intents, _LIST | {"customer"}),
    ("GET payment_intents/*", payment_intents.retrieve_intent, _RETRIEVE | {"client_secret"}),
    ("POST payment_intents/*/confirm", payment_intents.confirm_intent, payment_intents.CONFIRM_PARAMS),
    ("POST payment_intents/*/cancel", payment_intents.cancel_intent, payment_intents.CANCEL_PARAMS),
    ("GET charges", payment_intents.list_charges, _LIST | {"customer", "payment_intent"}),
    ("GET charges/*", payment_intents.retrieve_charge, _RETRIEVE),
)
_ROUTES: Final = {
    pattern: Route(pattern.replace(" ", " /v1/").replace("*", "{id}"), answer, params)
    for pattern, answer, params in _ENDPOINTS
}


def find_route(method: str, path: str) -> tuple[Route, tuple[str, ...]] | None:
    """Return the endpoint and the ids in the path, or None for an unknown URL."""
    parts = path[4:].split("/")
    ids = tuple(parts[1::2])
    parts[1::2] = ["*"] * len(ids)
    route = _ROUTES.get(f"{method} {'/'.join(parts)}")
    return None if route is None or not all(ids) else (route, ids)
