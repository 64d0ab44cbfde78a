"""Customers and payment methods in bulk, under ids of the caller's choice."""

from typing import Any

from deploy.stripe_sim.behaviours import find_documented_id
from deploy.stripe_sim.objects import Customer, PaymentMethod
from deploy.stripe_sim.simulator import Simulator
from deploy.stripe_sim.store import AccountData


class SeedError(ValueError):
    """A seed document that cannot be read or contradicts what is there."""


def seed_account(simulator: Simulator, document: Any) -> dict[str, int]:
    """Create what is missing of `{"account"?, "customers": [...]}`.

    A customer is `{"id", "payment_methods"?: [{"id"}], "default_payment_method"?}`.
    Returns how many customers and payment methods were new. Doing it again changes nothing.
    """
    if not isinstance(document, dict) or not isinstance(document.get("customers"), list):
        raise SeedError('expected {"customers": [...]}')
    account = simulator.account(document.get("account") or simulator.settings.account)
    counts = {"customers": 0, "payment_methods": 0}
    created = int(simulator.clock.now())
    for item in document["customers"]:
        _seed_customer(account, item, created, counts)
    return counts


def _seed_customer(account: AccountData, item: Any, created: int, counts: dict[str, int]) -> None:
    customer_id = _need_id(item, "cus_")
    method_ids = [_need_id(entry, "pm_") for entry in item.get("payment_methods") or []]
    default_id = item.get("default_payment_method")
    customer = account.customers.by_id.get(customer_id)
    is_new = customer is None
    if customer is None:
        customer = Customer(customer_id, account.customers.next_seq(), created)
    for method_id in method_ids:
        known = account.payment_methods.by_id.get(method_id)
        if known is not None:
            if known.customer != customer_id:
                raise SeedError(f"{method_id} belongs to {known.customer}, not to {customer_id}")
            continue
        seq = account.payment_methods.next_seq()
        documented_id = find_documented_id(method_id)
        account.payment_methods.add(PaymentMethod(method_id, seq, created, documented_id, customer_id))
        counts["payment_methods"] += 1
    if default_id is not None:
        default = account.payment_methods.by_id.get(default_id)
        if default is None or default.customer != customer_id:
            raise SeedError(f"{default_id} is not a payment method of {customer_id}")
    changed = default_id is not None and customer.default_payment_method != default_id
    if changed:
        customer.default_payment_method = default_id
    if is_new:
        account.customers.add(customer)
        counts["customers"] += 1
    elif changed:
        account.customers.save(customer)


def _need_id(item: Any, prefix: str) -> str:
    object_id = item.get("id") if isinstance(item, dict) else None
    if not isinstance(object_id, str) or not object_id.startswith(prefix):
        raise SeedError(f"expected an object with an id that starts with {prefix}, got {item!r}")
    return object_id
