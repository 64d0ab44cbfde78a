"""/v1/webhook_endpoints."""

from typing import Final
from urllib.parse import urlsplit

from deploy.stripe_sim.draws import make_id
from deploy.stripe_sim.errors import bad_request, missing_object
from deploy.stripe_sim.event_types import EVENT_TYPES
from deploy.stripe_sim.forms import (
    Params,
    merge_metadata,
    need_text,
    take_boolean,
    take_list,
    take_text,
)
from deploy.stripe_sim.objects import WebhookEndpoint
from deploy.stripe_sim.paging import show_list, take_page
from deploy.stripe_sim.shapes import Json
from deploy.stripe_sim.simulator import Call

CREATE_PARAMS: Final = frozenset(
    {"url", "enabled_events", "description", "metadata", "api_version", "connect", "expand"}
)
UPDATE_PARAMS: Final = frozenset({"url", "enabled_events", "description", "metadata", "disabled", "expand"})
# docs.stripe.com/webhooks: up to 16 endpoints per account.
ENDPOINTS_MAX: Final = 16


def create_endpoint(call: Call) -> Json:
    """POST /v1/webhook_endpoints; the only answer that shows the secret."""
    url, events = _check_url(need_text(call.params, "url")), _take_events(call.params)
    if not events:
        raise bad_request(
            "Missing required param: enabled_events.", code="parameter_missing", param="enabled_events"
        )
    description = take_text(call.params, "description")
    metadata, connect = merge_metadata(call.params, {}), take_boolean(call.params, "connect")
    shelf = call.account.endpoints
    if sum(not endpoint.deleted for endpoint in shelf.in_order) >= ENDPOINTS_MAX:
        raise bad_request(f"You have reached the maximum of {ENDPOINTS_MAX} test webhook endpoints.")
    seq = shelf.next_seq()
    endpoint = WebhookEndpoint(
        call.new_id("we", seq),
        seq,
        int(call.now),
        url,
        events,
        [(make_secret(call, seq), None)],
        metadata,
        description,
        take_text(call.params, "api_version"),
        connect,
    )
    shelf.add(endpoint)
    call.simulator.courier.look_around()
    return {**show_endpoint(endpoint), "secret": endpoint.secrets[0][0]}


def retrieve_endpoint(call: Call) -> Json:
    """GET /v1/webhook_endpoints/{id}."""
    return show_endpoint(_find(call))


def update_endpoint(call: Call) -> Json:
    """POST /v1/webhook_endpoints/{id}."""
    endpoint, params = _find(call), call.params
    url = _check_url(need_text(params, "url")) if "url" in params else endpoint.url
    events = _take_events(params) or endpoint.enabled_events
    metadata = merge_metadata(params, endpoint.metadata)
    description = take_text(params, "description") if "description" in params else endpoint.description
    disabled = take_boolean(params, "disabled") if "disabled" in params else endpoint.disabled
    endpoint.url, endpoint.enabled_events, endpoint.metadata = url, events, metadata
    endpoint.description, endpoint.disabled = description, disabled
    call.account.endpoints.save(endpoint)
    call.simulator.courier.look_around()
    return show_endpoint(endpoint)


def delete_endpoint(call: Call) -> Json:
    """DELETE /v1/webhook_endpoints/{id}."""
    endpoint = _find(call)
    endpoint.deleted = True
    call.account.endpoints.save(endpoint)
    call.simulator.courier.look_around()
    return {"id": endpoint.id, "object": "webhook_endpoint", "deleted": True}


def list_endpoints(call: Call) -> Json:
    """GET /v1/webhook_endpoints."""
    shelf = call.account.endpoints
    page, has_more = take_page(
        call.params, shelf, shelf.in_order, "webhook_endpoint", accept=lambda endpoint: not endpoint.deleted
    )
    shown = [show_endpoint(endpoint) for endpoint in page]
    return show_list("/v1/webhook_endpoints", shown, has_more=has_more)


def make_secret(call: Call, *parts: object) -> str:
    """Return a signing secret that depends on the seed alone."""
    return f"whsec_{make_id('secret', call.account.id, *parts, seed=call.simulator.seed)[7:]}"


def show_endpoint(endpoint: WebhookEndpoint) -> Json:
    """Return an endpoint without its secret."""
    return {
        "id": endpoint.id,
        "object": "webhook_endpoint",
        "api_version": endpoint.api_version,
        "application": None,
        "created": endpoint.created,
        "description": endpoint.description,
        "enabled_events": endpoint.enabled_events,
        "livemode": False,
        "metadata": endpoint.metadata,
        "status": "disabled" if endpoint.disabled else "enabled",
        "url": endpoint.url,
    }


def _check_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        message = "Invalid URL: An explicit scheme (such as https) must be provided."
        raise bad_request(message, code="url_invalid", param="url")
    return url


def _take_events(params: Params) -> list[str]:
    events = take_list(params, "enabled_events")
    for name in events:
        if name != "*" and name not in EVENT_TYPES:
            message = f"Invalid enabled_events: {name} is not an event type."
            raise bad_request(message, param="enabled_events")
    return events


def _find(call: Call) -> WebhookEndpoint:
    endpoint = call.account.endpoints.by_id.get(call.ids[0])
    if endpoint is None or endpoint.deleted:
        raise missing_object("webhook endpoint", call.ids[0], param="id")
    return endpoint
