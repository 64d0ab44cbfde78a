"""Stripe's list of what happened, read into the same nudges that its webhooks are.

It goes back 30 days (https://docs.stripe.com/api/events/list).
"""

from collections.abc import AsyncIterator, Sequence

from activities.gateway.calls import StripeCalls
from activities.gateway.findings import EventPage
from activities.gateway.money_back import said
from activities.gateway.requests import StripeAccount
from workflows.domain.errors import InvalidInput, invariant
from workflows.domain.webhook_event import WebhookEvent, read_event_object

EVENTS_PATH = "/v1/events"
PAGE_SIZE_MAX = 100
TYPES_MAX = 20  # what one question may name


async def list_events(
    calls: StripeCalls,
    account: StripeAccount,
    *,
    types: Sequence[str],
    created_from_epoch_seconds: int,
    created_to_epoch_seconds: int | None,
) -> AsyncIterator[EventPage]:
    """Yield pages of events of some types made in a span, newest first, until the last or a failed one."""
    invariant(0 < len(types) <= TYPES_MAX, f"one question names 1 to {TYPES_MAX} types of events")
    created = {"gte": created_from_epoch_seconds}
    if created_to_epoch_seconds is not None:
        created["lte"] = created_to_epoch_seconds
    parameters: dict[str, object] = {"created": created, "limit": PAGE_SIZE_MAX, "types": list(types)}
    while True:
        reply = await calls.get(EVENTS_PATH, parameters, account)
        answer, body = reply.answer, reply.body or {}
        items = body.get("data") if answer.succeeded else None
        if not isinstance(items, list):
            yield EventPage(
                (),
                complete=False,
                has_more=False,
                failure=said(EVENTS_PATH, answer),
                retry_after_seconds=answer.retry_after_seconds,
            )
            return
        events = [event for event in map(_read, items) if event is not None]
        says_more, failure = body.get("has_more") is not False, None
        if len(events) < len(items):
            failure = f"{EVENTS_PATH}: an item of the list can't be read"
        elif says_more and not events:
            failure = f"{EVENTS_PATH}: an empty page that says there is more"
        has_more = says_more and failure is None
        yield EventPage(tuple(events), complete=failure is None, has_more=has_more, failure=failure)
        if not has_more:
            return
        parameters["starting_after"] = events[-1].event_id


def _read(item: object) -> WebhookEvent | None:
    try:
        return read_event_object(item)
    except InvalidInput:
        return None
