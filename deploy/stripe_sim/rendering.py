"""Any object of an account in Stripe's shape."""

from typing import Any

from deploy.stripe_sim.events import Event
from deploy.stripe_sim.objects import (
    Charge,
    Customer,
    Dispute,
    PaymentIntent,
    PaymentMethod,
    Record,
    Refund,
)
from deploy.stripe_sim.shapes import (
    Json,
    show_customer,
    show_payment_intent,
    show_payment_method,
)
from deploy.stripe_sim.shapes_of_charges import show_charge
from deploy.stripe_sim.shapes_of_money import show_dispute, show_refund, show_transaction
from deploy.stripe_sim.store import AccountData

API_VERSION = "2026-10-28.endive"


def render(account: AccountData, item: Record) -> Json:
    """Return an object as an endpoint shows it."""
    match item:
        case PaymentIntent():
            return show_payment_intent(item)
        case Charge():
            return show_charge(item, account.payment_methods.by_id.get(item.payment_method))
        case Customer():
            return show_customer(item)
        case PaymentMethod():
            return show_payment_method(item)
        case Refund():
            return show_refund(item)
        case Dispute():
            entries = [account.ledger.find(transaction) for transaction in item.transactions]
            shown = [show_transaction(entry, entry.available_on) for entry in entries if entry is not None]
            return show_dispute(item, shown)
    raise TypeError(f"{type(item).__name__} has no shape of its own")


def render_event(
    account: AccountData, event: Event, *, of_connected_account: bool = False, api_version: str | None = None
) -> Json:
    """Return an event; a Connect endpoint is also told whose it is."""
    data: dict[str, Any] = {"object": render(account, account.shelf(event.kind).load(event.address))}
    if event.previous is not None:
        data["previous_attributes"] = event.previous
    pending = account.events.undelivered.get(event.number, {})
    shown: Json = {
        "id": event.id,
        "object": "event",
        "api_version": api_version or API_VERSION,
        "created": event.created,
        "data": data,
        "livemode": False,
        "pending_webhooks": sum(state == "pending" for state in pending.values()),
        "request": {"id": event.request_id, "idempotency_key": event.key},
        "type": event.type,
    }
    if of_connected_account:
        shown["account"] = account.id
    return shown
