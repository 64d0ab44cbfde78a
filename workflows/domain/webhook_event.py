"""What is kept of a webhook: which object to look at, and nothing that it says about that object.

A body is hostile text, holds client secrets and personal data, and is outdated on arrival. So it is read
once, for a handful of names in strict spellings, and thrown away.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workflows.domain.answer import METADATA_CHARGE
from workflows.domain.errors import InvalidInput

_ID = re.compile(r"[A-Za-z0-9_]{1,255}")
_EVENT_ID = re.compile(r"evt_[A-Za-z0-9_]{1,250}")
_TYPE = re.compile(r"[a-z0-9_]{1,60}(?:\.[a-z0-9_]{1,60}){1,4}")
_CHARGE_ID = re.compile(r"[0-9a-f]{32}")
_EPOCH_SECONDS_MAX = 253_402_300_799  # the last second of the year 9999, beyond which no database goes


@dataclass(frozen=True, slots=True)
class WebhookEvent:
    """One event, as a nudge. `account` is None where it is the endpoint's own.

    `payment_intent` is the one that the event is about, or about whose charge, refund or dispute it is.
    `charge_id` is the identity in the metadata of the event's object, None where there is none.
    """

    event_id: str
    type: str
    account: str | None
    live: bool
    created_epoch_seconds: int
    object_kind: str | None
    object_id: str | None
    payment_intent: str | None
    charge_id: str | None
    request_id: str | None


def read_event(body: bytes) -> WebhookEvent:
    """Return what a verified body says happened.

    Raises:
        InvalidInput: It is no JSON, or no snapshot event of Stripe's v1 API.
    """
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidInput("not JSON") from None
    return read_event_object(event)


def read_event_object(event: object) -> WebhookEvent:
    """Return what an event says happened, taken out of a verified body or of Stripe's list of events.

    Raises:
        InvalidInput: It is no snapshot event of Stripe's v1 API.
    """
    if not isinstance(event, dict) or event.get("object") != "event":
        raise InvalidInput("not an event")
    event_id, event_type = _spelled(_EVENT_ID, event.get("id")), _spelled(_TYPE, event.get("type"))
    created, live = event.get("created"), event.get("livemode")
    if event_id is None or event_type is None:
        raise InvalidInput("an event without an id or a type")
    if isinstance(created, bool) or not isinstance(created, int) or not 0 <= created <= _EPOCH_SECONDS_MAX:
        raise InvalidInput("an event without a time")
    if not isinstance(live, bool):
        raise InvalidInput("an event that does not say whether it is live")
    account = event.get("account")
    if account is not None and _spelled(_ID, account) is None:
        raise InvalidInput("an event of an account that can't be one")
    subject = _mapping(_mapping(event.get("data")).get("object"))
    kind = _spelled(_ID, subject.get("object"))
    own_id = _spelled(_ID, subject.get("id"))
    return WebhookEvent(
        event_id=event_id,
        type=event_type,
        account=account,
        live=live,
        created_epoch_seconds=created,
        object_kind=kind,
        object_id=own_id,
        payment_intent=own_id if kind == "payment_intent" else _reference(subject.get("payment_intent")),
        charge_id=_spelled(_CHARGE_ID, _mapping(subject.get("metadata")).get(METADATA_CHARGE)),
        request_id=_spelled(_ID, _mapping(event.get("request")).get("id")),
    )


def _spelled(pattern: re.Pattern[str], value: object) -> str | None:
    return value if isinstance(value, str) and pattern.fullmatch(value) else None


def _reference(value: object) -> str | None:
    """A reference is an id, or the whole object where it was expanded."""
    return _spelled(_ID, value.get("id") if isinstance(value, dict) else value)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
