"""From a request on the wire to what is asked: who, for which account, which endpoint, how much money.

The raw path decides and is passed on as it came, so nothing may be in it that another reader resolves.
"""

import base64
import binascii
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from multidict import CIMultiDictProxy

from activities.ledger.cap import Ask
from worker.proxy.answers import (
    AMBIGUOUS_REQUEST,
    KEY_NEEDED,
    UPSTREAM_NOT_REACHED,
    VAULT_KEY_UNKNOWN,
    Refusal,
)
from worker.proxy.forms import FORM_TYPE, Ambiguous, currency_of, parse_form, truth, whole_number
from workflows.domain.vault import ENDPOINTS, Effect, is_plain_path, match_endpoint
from workflows.domain.vault_keys import parse_vault_key

NOT_AFTER = "Chargeonce-Not-After"
CREATE_CONFIRMED = "create_confirmed"
SENT_ON: Final = (
    "Idempotency-Key",
    "Stripe-Version",
    "Content-Type",
    "Accept",
    "User-Agent",
    "X-Stripe-Client-User-Agent",
    "X-Stripe-Client-Telemetry",
)

_SINGLE: Final = (*SENT_ON, "Authorization", "Stripe-Account", "Content-Length", "Host", NOT_AFTER)
_KEY_VALUE = re.compile(r"[!-~]{1,255}")
_ACCOUNT = re.compile(r"[A-Za-z0-9_]{1,255}")
_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?", re.ASCII)
_KEY_LIKE = re.compile(r"(?<![0-9A-Za-z])(?:[srpv]k|whsec)_[0-9A-Za-z_]{5,}")  # a mistake, and paths are kept
_QUERY = re.compile(r"[!-~]*")


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request as it came: `target` is the raw path with its query."""

    method: str
    target: str
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def path(self) -> str:
        """The raw path without the query."""
        return self.target.partition("?")[0]


def read_ask(incoming: Incoming, now_epoch_seconds: float) -> Ask:
    """Return what a request asks; what is wrong with it stands in `refused`.

    Raises:
        Refusal: There is no vault key in it, so there is nobody to write it down for.
    """
    key = parse_vault_key(_bearer(incoming.headers) or "")
    if key is None:
        raise Refusal(VAULT_KEY_UNKNOWN, _what_came_instead(incoming.headers))
    ask = Ask(
        call_id=str(uuid.uuid4()),
        key_sha256=key.sha256.hex(),
        method=incoming.method[:16],
        path=_KEY_LIKE.sub("(key)", incoming.path[:500]),
    )
    try:
        _check_headers(incoming, now_epoch_seconds)
        _check_target(incoming)
        ask = replace(
            ask,
            account=incoming.headers.get("Stripe-Account") or None,
            idempotency_key=incoming.headers.get("Idempotency-Key"),
        )
        matched = match_endpoint(incoming.method, incoming.path)
        if matched is None:
            return ask
        return _read_endpoint(incoming, replace(ask, endpoint=matched[0]), matched[1])
    except Ambiguous as trouble:
        return replace(ask, refused=AMBIGUOUS_REQUEST, refused_detail=str(trouble))
    except Refusal as refusal:
        return replace(ask, refused=refusal.code, refused_detail=refusal.detail)


def _what_came_instead(headers: CIMultiDictProxy[str]) -> str:
    if "Authorization" not in headers:
        return "the request carries none"
    if (_bearer(headers) or "").startswith(("sk_", "rk_", "pk_")):
        return "a Stripe key opens nothing here; whoever runs the proxy issues vault keys (vk_...)"
    return "what the request carries is none (vk_test_... or vk_live_..., whole)"


def _bearer(headers: CIMultiDictProxy[str]) -> str | None:
    given = headers.getall("Authorization", [])
    if len(given) != 1:
        return None
    kind, _, text = given[0].partition(" ")
    if kind.lower() == "bearer":
        return text.strip()
    if kind.lower() == "basic":  # as curl -u does: the key is the name, and there is no password
        try:
            name, _, password = base64.b64decode(text, validate=True).decode("ascii").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        return name if not password else None
    return None


def _check_headers(incoming: Incoming, now_epoch_seconds: float) -> None:
    headers = incoming.headers
    if any(len(headers.getall(name, [])) > 1 for name in _SINGLE):
        raise Ambiguous("a header stands twice")
    if "Transfer-Encoding" in headers and "Content-Length" in headers:
        raise Ambiguous("the body has two lengths")
    if headers.get("Stripe-Context"):
        raise Ambiguous("Stripe-Context is not supported: the account is the vault key's")
    account, key = headers.get("Stripe-Account"), headers.get("Idempotency-Key")
    if account and not _ACCOUNT.fullmatch(account):
        raise Ambiguous("Stripe-Account is no account's id")
    if key is not None and not _KEY_VALUE.fullmatch(key):
        raise Ambiguous("Idempotency-Key is not 1 to 255 printable characters")
    not_after = headers.get(NOT_AFTER)
    if not_after is not None:
        if not _SECONDS.fullmatch(not_after):
            raise Ambiguous(f"{NOT_AFTER} is not a number of seconds")
        if now_epoch_seconds > float(not_after):
            raise Refusal(UPSTREAM_NOT_REACHED, "the time to send had passed")


def _check_target(incoming: Incoming) -> None:
    path, mark, query = incoming.target.partition("?")
    if not is_plain_path(path):
        raise Ambiguous("the path is unusual")
    if incoming.method != "GET" and mark:
        raise Ambiguous("parameters stand in the URL, and belong into the body")
    if not _QUERY.fullmatch(query) or "#" in query:
        raise Ambiguous("the query has characters that a URL escapes")
    if incoming.method == "GET" and incoming.body:
        raise Ambiguous("a GET has a body")


def _read_endpoint(incoming: Incoming, ask: Ask, ids: tuple[str, ...]) -> Ask:
    effect = ENDPOINTS[ask.endpoint or ""]
    is_intent = incoming.path.startswith("/v1/payment_intents/") and ids
    ask = replace(ask, effect=effect, intent=ids[0] if is_intent else None)
    if effect is Effect.READ:
        return ask
    content_type = incoming.headers.get("Content-Type", FORM_TYPE).partition(";")[0].strip().lower()
    if content_type != FORM_TYPE:
        raise Ambiguous(f"the body is not {FORM_TYPE}")
    parameters = parse_form(incoming.body)
    return _READERS.get(effect, _read_nothing)(ask, parameters)


def _read_nothing(ask: Ask, _parameters: dict[str, str]) -> Ask:
    return ask


def _read_create(ask: Ask, parameters: dict[str, str]) -> Ask:
    amount, currency = whole_number(parameters, "amount"), currency_of(parameters)
    ask = replace(ask, amount=amount, currency=currency)
    if not truth(parameters, "confirm"):
        return ask
    if amount is None or currency is None:
        raise Ambiguous("a create that confirms names its amount and currency")
    return _under_its_key(ask, "create", effect=CREATE_CONFIRMED)


def _read_change(ask: Ask, parameters: dict[str, str]) -> Ask:
    amount, currency = whole_number(parameters, "amount"), currency_of(parameters)
    if amount is None and currency is None:
        return replace(ask, effect=Effect.HARMLESS)
    return replace(ask, counts=True, amount=amount, currency=currency)


def _read_confirm(ask: Ask, parameters: dict[str, str]) -> Ask:
    return replace(ask, counts=True, amount=whole_number(parameters, "amount_to_confirm"))


def _read_capture(ask: Ask, parameters: dict[str, str]) -> Ask:
    return replace(ask, counts=True, amount=whole_number(parameters, "amount_to_capture"))


def _read_increment(ask: Ask, parameters: dict[str, str]) -> Ask:
    amount = whole_number(parameters, "amount")
    if amount is None:
        raise Ambiguous("an increment names its amount")
    return replace(ask, counts=True, amount=amount)


def _read_refund(ask: Ask, parameters: dict[str, str]) -> Ask:
    if ("payment_intent" in parameters) == ("charge" in parameters):
        raise Ambiguous("a refund names either its payment_intent or its charge")
    return _under_its_key(replace(ask, amount=whole_number(parameters, "amount")), "refund", Effect.REFUND)


def _under_its_key(ask: Ask, kind: str, effect: str) -> Ask:
    if ask.idempotency_key is None:
        raise Refusal(KEY_NEEDED)
    return replace(ask, counts=True, effect=effect, intent=f"{kind}:{ask.idempotency_key}")


_READERS: Mapping[Effect, Callable[[Ask, dict[str, str]], Ask]] = {
    Effect.PREPARE: _read_create,
    Effect.CHANGE: _read_change,
    Effect.CONFIRM: _read_confirm,
    Effect.CAPTURE: _read_capture,
    Effect.INCREMENT: _read_increment,
    Effect.REFUND: _read_refund,
}
