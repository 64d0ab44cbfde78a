"""What an answer of Stripe's shows about the money that a request was about, read for the ledger.

Whatever can't be read surely shows nothing: then the outcome stays unknown, which goes on holding.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from activities.ledger.cap import Ask, Told
from worker.proxy.reading import CREATE_CONFIRMED
from workflows.domain.cap import judge_outcome
from workflows.domain.vault import Effect

BODY_BYTES_MAX = 16 * 1024 * 1024
ASK = "ask"  # the effect of what the proxy asks before it can decide

_WORD_LENGTH_MAX = 255
_SHOWS_INTENT = frozenset(
    {Effect.PREPARE, Effect.CHANGE, Effect.CONFIRM, Effect.CAPTURE, Effect.INCREMENT, Effect.CANCEL}
    | {CREATE_CONFIRMED, ASK}
)
_EFFECTS = {CREATE_CONFIRMED: Effect.CONFIRM, ASK: Effect.READ}
_REFUND_STATUSES = {
    "succeeded": "succeeded",
    "pending": "succeeded",
    "failed": "canceled",
    "canceled": "canceled",
}


@dataclass(frozen=True, slots=True)
class Answered:
    """A complete answer of Stripe's."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def tell(ask: Ask, answered: Answered, latency_ms: float) -> Told:
    """Return what is recorded of an answer."""
    document = read_json(answered)
    error = _mapping(document.get("error")) if document is not None else None
    code = _word((error or {}).get("code"))
    shown = _shown(ask, document, error) if ask.intent is not None or ask.effect in _SHOWS_INTENT else None
    effect = _EFFECTS.get(ask.effect or "") or Effect(ask.effect or Effect.READ)
    return Told(
        call_id=ask.call_id,
        outcome=judge_outcome(effect, http_status=answered.status, code=code, names_object=shown is not None),
        counts=ask.counts or shown is not None,
        http_status=answered.status,
        code=code or _word((error or {}).get("type")),
        request_id=_word(answered.headers.get("Request-Id")),
        replayed=answered.headers.get("Idempotent-Replayed", "").strip().lower() == "true",
        latency_ms=latency_ms,
        **(shown or {}),
    )


def tell_silence(ask: Ask, latency_ms: float) -> Told:
    """Return what is recorded where the request may have been executed and no answer came."""
    effect = _EFFECTS.get(ask.effect or "") or Effect(ask.effect or Effect.READ)
    return Told(
        call_id=ask.call_id,
        outcome=judge_outcome(effect, http_status=None, code=None, names_object=False),
        counts=ask.counts,
        latency_ms=latency_ms,
    )


def read_json(answered: Answered) -> dict[str, Any] | None:
    """Return the JSON object in a body, or None where there is none."""
    body = answered.body
    if answered.headers.get("Content-Encoding", "identity").lower() == "gzip":
        unpacked = _unpack(body)
        if unpacked is None:
            return None
        body = unpacked
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _unpack(body: bytes) -> bytes | None:
    try:
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(body, BODY_BYTES_MAX)
    except zlib.error:
        return None


def _shown(
    ask: Ask, document: Mapping[str, Any] | None, error: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    if document is None:
        return None
    if ask.effect == Effect.REFUND or (ask.intent or "").startswith("refund:"):
        return _refund(ask, document) if error is None else None
    found = _payment_intent(document if error is None else _mapping(error.get("payment_intent")))
    if found is None:
        return None
    is_named = ask.intent is not None and not ask.intent.startswith("create:")
    return found if not is_named or found["intent"] == ask.intent else None


def _payment_intent(body: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if body is None or body.get("object") != "payment_intent":
        return None
    intent, status, currency = _word(body.get("id")), _word(body.get("status")), _word(body.get("currency"))
    amount = _whole(body.get("amount"))
    if intent is None or status is None or currency is None or amount is None:
        return None
    received = _whole(body.get("amount_received"))
    charge = body.get("latest_charge")
    charge = charge.get("id") if isinstance(charge, dict) else charge
    return {
        "intent": intent,
        "intent_status": status,
        "amount": amount,
        "amount_received": amount if received is None and status == "succeeded" else received,
        "currency": currency.lower(),
        "latest_charge": _word(charge),
    }


def _refund(ask: Ask, body: Mapping[str, Any]) -> dict[str, Any] | None:
    amount, currency, status = (
        _whole(body.get("amount")),
        _word(body.get("currency")),
        _word(body.get("status")),
    )
    if body.get("object") != "refund" or amount is None or currency is None or status is None:
        return None
    stands = _REFUND_STATUSES.get(status, status)
    return {
        "intent": ask.intent,
        "intent_status": stands,
        "amount": amount,
        "amount_received": amount if stands == "succeeded" else 0,
        "currency": currency.lower(),
    }


def _mapping(value: object) -> Mapping[str, Any] | None:
    return value if isinstance(value, dict) else None


def _word(value: object) -> str | None:
    if not isinstance(value, str) or not 0 < len(value) <= _WORD_LENGTH_MAX or not value.isprintable():
        return None
    return value


def _whole(value: object) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62
    return value if is_whole else None  # type: ignore[return-value]  # narrowed by is_whole
