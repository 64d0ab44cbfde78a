"""/v1/events."""

from collections.abc import Callable

from deploy.stripe_sim.errors import bad_request, missing_object
from deploy.stripe_sim.events import KEPT_SECONDS, Event
from deploy.stripe_sim.forms import take_boolean, take_list, take_text
from deploy.stripe_sim.numbered_lists import take_numbered_page
from deploy.stripe_sim.paging import show_list
from deploy.stripe_sim.rendering import render_event
from deploy.stripe_sim.shapes import Json
from deploy.stripe_sim.simulator import Call

TYPES_MAX = 20


def retrieve_event(call: Call) -> Json:
    """GET /v1/events/{id}."""
    events = call.account.events
    number = events.find(call.ids[0])
    if number is None or events.created[number] < call.now - KEPT_SECONDS:
        raise missing_object("event", call.ids[0], param="id")
    return render_event(call.account, events.read(number))


def list_events(call: Call) -> Json:
    """GET /v1/events: 30 days back, newest first."""
    events = call.account.events
    matches = _take_types(call)
    delivered = take_boolean(call.params, "delivery_success") if call.params.get("delivery_success") else None

    def read(number: int) -> Event | None:
        fits = delivered is None or delivered is (number not in events.undelivered)
        return events.read(number) if fits and matches(events.type_of(number)) else None

    page, has_more = take_numbered_page(
        call.params,
        events.created,
        monotone=events.monotone,
        since=call.now - KEPT_SECONDS,
        find=events.find,
        read=read,
        noun="event",
    )
    return show_list("/v1/events", [render_event(call.account, event) for event in page], has_more=has_more)


def _take_types(call: Call) -> Callable[[str], bool]:
    one, several = take_text(call.params, "type"), take_list(call.params, "types")
    if one is not None and several:
        raise bad_request("You may pass either `type` or `types`, but not both.", param="type")
    if len(several) > TYPES_MAX:
        raise bad_request(f"`types` can have up to {TYPES_MAX} event names.", param="types")
    wanted = [one] if one is not None else several
    if not wanted:
        return lambda _name: True
    exact = {name for name in wanted if not name.endswith("*")}
    families = tuple(name[:-1] for name in wanted if name.endswith("*"))
    return lambda name: name in exact or name.startswith(families)
