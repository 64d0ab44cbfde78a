"""Unknown outcomes are looked up until they are known: a hold never ends by age.

- A PaymentIntent is retrieved. Paid settles it, canceled releases it.
- One that could be confirmed again is released only when its failed charges show that every open confirm was
  executed and declined: a request that no answer came to may still be executed, or rolled forward late.
- A create that confirmed at once, and a refund, are looked for among the events, the only place where Stripe
  shows a key. One that is not there proves nothing: it stays held. Its key can be sent again within the
  window.
"""

import asyncio
import json
import logging
from datetime import UTC, datetime
from typing import Any, NamedTuple

from activities.ledger.cap import Told, Unresolved
from worker.proxy.evidence import read_json, tell
from worker.proxy.looking import AskedInVain, question
from worker.proxy.parts import Parts
from workflows.domain.cap import Outcome, Stand, stand_of
from workflows.domain.errors import NothingWasSent
from workflows.domain.vault import Effect

LOOKS_AT_ONCE = 8
LIMIT = 200
EVENT_SPAN_SECONDS = 3_600
EVENT_PAGES_MAX = 20
SKEW_SECONDS = 120


class _Made(NamedTuple):
    """Where what a key made shows up."""

    event: str
    path: str


_MADE_BY_KEY = {
    "create": _Made("payment_intent.created", "/v1/payment_intents"),
    "refund": _Made("refund.created", "/v1/refunds"),
}
_LOG = logging.getLogger("chargeonce.proxy")


async def sweep_forever(parts: Parts, *, every_seconds: float, older_than_seconds: float) -> None:
    """Look up unknown outcomes again and again, until cancelled."""
    while True:
        await asyncio.sleep(every_seconds)
        try:
            await settle_unknown(parts, older_than_seconds=older_than_seconds)
        except Exception as error:  # noqa: BLE001 - the next round may go better, and the proxy must go on
            _LOG.warning(json.dumps({"event": "proxy_sweep_failed", "error": type(error).__name__}))


async def settle_unknown(parts: Parts, *, older_than_seconds: float) -> int:
    """Look up what has been held for at least so long (seconds of the ledger's clock); return how many.

    Raises:
        NothingWasSent: The ledger can't be reached.
    """
    due = await parts.ledger.unresolved(limit=LIMIT, older_than_seconds=older_than_seconds)
    places = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def settle(found: Unresolved) -> None:
        async with places:
            try:
                await _look_at(parts, found)
            except (AskedInVain, NothingWasSent) as failure:
                _LOG.info(json.dumps({"event": "proxy_lookup_failed", "why": str(failure)}))

    await asyncio.gather(*(settle(found) for found in due))
    return len(due)


async def _look_at(parts: Parts, found: Unresolved) -> None:
    intent = found.intent
    kind, colon, key = intent.partition(":")
    if colon:
        made = _MADE_BY_KEY[kind]
        if (named := await _find_made(parts, found, key, made.event)) is not None:
            await _retrieve(parts, found, made.path, named)
        return
    ask, answered = await question(
        parts, found.account, f"/v1/payment_intents/{intent}", intent=intent, effect=Effect.READ
    )
    told = tell(ask, answered, 0.0)
    await _record(parts, told)
    if found.open_calls and told.intent_status is not None and stand_of(told.intent_status) is Stand.WAITS:
        await _match_charges(parts, found)


async def _match_charges(parts: Parts, found: Unresolved) -> None:
    target = f"/v1/charges?payment_intent={found.intent}&limit=100"
    ask, answered = await question(parts, found.account, target, intent=found.intent, effect=Effect.READ)
    document = read_json(answered) or {}
    items = document.get("data")
    failed: tuple[str, ...] = ()
    if answered.status == 200 and isinstance(items, list) and document.get("has_more") is False:
        failed = tuple(
            item["id"] for item in items if isinstance(item, dict) and item.get("status") == "failed"
        )
    told = Told(
        call_id=ask.call_id, outcome=Outcome.READ, counts=True, http_status=answered.status, charges=failed
    )
    await _record(parts, told)


async def _find_made(parts: Parts, found: Unresolved, key: str, event: str) -> dict[str, Any] | None:
    """Return the object that a key made, by the events of its hour; None proves nothing."""
    opened = (found.opened_at or datetime.now(UTC)).timestamp()
    span = f"created[gte]={int(opened) - SKEW_SECONDS}&created[lte]={int(opened) + EVENT_SPAN_SECONDS}"
    target = f"/v1/events?type={event}&limit=100&{span}".replace("[", "%5B").replace("]", "%5D")
    after = ""
    for _ in range(EVENT_PAGES_MAX):
        ask, answered = await question(parts, found.account, target + after, effect=Effect.READ)
        parts.ledger.record(tell(ask, answered, 0.0))
        document = read_json(answered) or {}
        items = [item for item in document.get("data") or () if isinstance(item, dict)]
        for item in items:
            if _dig(item, "request", "idempotency_key") == key:
                created = _dig(item, "data", "object")
                return created if isinstance(created, dict) else None
        if document.get("has_more") is not True or not items:
            return None
        after = f"&starting_after={items[-1].get('id')}"
    return None


async def _retrieve(parts: Parts, found: Unresolved, path: str, made: dict[str, Any]) -> None:
    """Retrieve what a key made, as the answer to its request."""
    named = made.get("id")
    if not isinstance(named, str) or not named.replace("_", "").isalnum():
        return
    ask, answered = await question(
        parts, found.account, f"{path}/{named}", intent=found.intent, effect=Effect.READ
    )
    await _record(parts, tell(ask, answered, 0.0))


async def _record(parts: Parts, told: Told) -> None:
    parts.ledger.record(told)
    await parts.ledger.recorded(told.call_id)


def _dig(item: dict[str, Any], *names: str) -> Any:
    found: Any = item
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found
