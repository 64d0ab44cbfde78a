"""The controls of /_sim that speak of webhooks, and of what a cardholder would do."""

from collections.abc import Callable
from typing import Any, Final

from deploy.stripe_sim.draws import make_id
from deploy.stripe_sim.errors import ApiError
from deploy.stripe_sim.payments import finish_authentication
from deploy.stripe_sim.simulator import Cause, Simulator
from deploy.stripe_sim.states import find_intent
from deploy.stripe_sim.store import AccountData

Json = dict[str, Any]
PAGE_SIZE_DEFAULT: Final = 1_000
# docs.stripe.com/webhooks: a rolled secret can stay good for up to 24 hours.
OVERLAP_SECONDS_MAX: Final = 86_400


def show_webhooks(simulator: Simulator, _query: Json, _document: Any) -> Json:
    """GET /_sim/webhooks: the endpoints with their secrets, and what waits for its time."""
    now = simulator.clock.now()
    endpoints = [
        {
            "id": endpoint.id,
            "account": account.id,
            "url": endpoint.url,
            "enabled_events": endpoint.enabled_events,
            "secrets": [secret for secret, until in endpoint.secrets if until is None or until > now],
            "disabled": endpoint.disabled,
        }
        for account in simulator.accounts.values()
        for endpoint in account.endpoints.in_order
        if not endpoint.deleted
    ]
    return {"endpoints": endpoints, "pending": simulator.courier.pending()}


def show_deliveries(simulator: Simulator, query: Json, _document: Any) -> Json:
    """GET /_sim/webhooks/deliveries: the attempts, oldest first."""
    attempts = list(simulator.courier.deliveries.attempts)
    since, limit = max(0, int(query.get("since", 0))), int(query.get("limit", PAGE_SIZE_DEFAULT))
    page = attempts[since : since + max(0, limit)]
    return {"deliveries": [attempt.show() for attempt in page], "total": len(attempts)}


def show_webhook_faults(simulator: Simulator, _query: Json, _document: Any) -> Json:
    """GET /_sim/webhooks/faults."""
    return simulator.courier.plan.show()


def set_webhook_faults(simulator: Simulator, _query: Json, document: Any) -> Json:
    """PUT /_sim/webhooks/faults."""
    simulator.courier.replace_faults(document)
    return simulator.courier.plan.show()


def clear_webhook_faults(simulator: Simulator, _query: Json, _document: Any) -> Json:
    """DELETE /_sim/webhooks/faults."""
    simulator.courier.replace_faults([])
    return simulator.courier.plan.show()


def roll_secret(simulator: Simulator, _query: Json, document: Any) -> Json:
    """POST /_sim/webhooks/roll: a new secret; the old one stays good for `overlap_seconds`."""
    account, endpoint_id = _find_account(simulator, document), document.get("endpoint")
    endpoint = account.endpoints.by_id.get(endpoint_id)
    overlap_seconds = document.get("overlap_seconds", 0)
    if endpoint is None or endpoint.deleted:
        raise ValueError(f"no endpoint {endpoint_id} in {account.id}")
    if not isinstance(overlap_seconds, int | float) or not 0 <= overlap_seconds <= OVERLAP_SECONDS_MAX:
        raise ValueError(f"overlap_seconds lies between 0 and {OVERLAP_SECONDS_MAX}")
    until = simulator.clock.now() + overlap_seconds
    parts = (account.id, endpoint.seq, len(endpoint.secrets))
    secret = f"whsec_{make_id('secret', *parts, seed=simulator.seed)[7:]}"
    old = [
        (entry, until if good_until is None else min(until, good_until))
        for entry, good_until in endpoint.secrets
    ]
    endpoint.secrets = [(secret, None), *old]
    account.endpoints.save(endpoint)
    return {"endpoint": endpoint.id, "secret": secret, "old_secret_expires_at": until}


def resend_event(simulator: Simulator, _query: Json, document: Any) -> Json:
    """POST /_sim/webhooks/resend: send an event once more to every endpoint that it concerns."""
    account = _find_account(simulator, document)
    number = account.events.find(str(document.get("event")))
    if number is None:
        raise ValueError(f"no event {document.get('event')} in {account.id}")
    return {"sent_to": simulator.courier.resend(account, number)}


def authenticate(simulator: Simulator, _query: Json, document: Any) -> Json:
    """POST /_sim/authenticate: the cardholder passes or fails what a PaymentIntent waits for."""
    account = _find_account(simulator, document)
    try:
        intent = find_intent(account, str(document.get("payment_intent")))
    except ApiError as error:
        raise ValueError(str(error)) from error
    if intent.status != "requires_action":
        raise ValueError(f"{intent.id} is {intent.status}, not requires_action")
    succeeds = document.get("succeeds", True)
    if not isinstance(succeeds, bool):
        raise TypeError("succeeds is true or false")
    finish_authentication(Cause(simulator, account, simulator.clock.now()), intent, succeeded=succeeds)
    return {"payment_intent": intent.id, "status": intent.status}


def _find_account(simulator: Simulator, document: Any) -> AccountData:
    if not isinstance(document, dict):
        raise TypeError("expected an object")
    return simulator.account(document.get("account") or simulator.settings.account)


CONTROLS: Final[dict[tuple[str, str], Callable[[Simulator, Json, Any], Json]]] = {
    ("GET", "/_sim/webhooks"): show_webhooks,
    ("GET", "/_sim/webhooks/deliveries"): show_deliveries,
    ("GET", "/_sim/webhooks/faults"): show_webhook_faults,
    ("PUT", "/_sim/webhooks/faults"): set_webhook_faults,
    ("DELETE", "/_sim/webhooks/faults"): clear_webhook_faults,
    ("POST", "/_sim/webhooks/roll"): roll_secret,
    ("POST", "/_sim/webhooks/resend"): resend_event,
    ("POST", "/_sim/authenticate"): authenticate,
}
