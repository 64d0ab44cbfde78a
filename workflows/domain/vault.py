"""What a vault key may call: the catalog of endpoints, what each can do to money, the allowlist per scope.

An endpoint that is not in the catalog can't be allowed to anybody, since the proxy would not know how to
count it: charges, transfers, payouts, invoices, checkout and everything of the v2 API are not in it, but for
reading a few of them.
"""

import re
import unicodedata
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from urllib.parse import unquote_to_bytes

ID = "{id}"


class Effect(StrEnum):
    """What a request can do to money."""

    READ = "read"
    HARMLESS = "harmless"  # writes, and moves nothing
    PREPARE = "prepare"  # creates a PaymentIntent; moves money only where it says `confirm`
    CHANGE = "change"  # may change the amount that a later confirm moves
    CONFIRM = "confirm"
    CAPTURE = "capture"
    INCREMENT = "increment"
    CANCEL = "cancel"
    REFUND = "refund"


class Scope(StrEnum):
    """What a vault key is for."""

    BILLING = "billing"
    PLANNING = "planning"
    RECONCILE = "reconcile"
    REFUND = "refund"
    CUSTOM = "custom"


_READS = (
    "account",
    "balance",
    "balance_transactions",
    "balance_transactions/{id}",
    "charges",
    "charges/{id}",
    "charges/{id}/refunds",
    "customers",
    "customers/{id}",
    "customers/{id}/payment_methods",
    "customers/{id}/payment_methods/{id}",
    "disputes",
    "disputes/{id}",
    "events",
    "events/{id}",
    "payment_intents",
    "payment_intents/search",
    "payment_intents/{id}",
    "payment_methods",
    "payment_methods/{id}",
    "payouts",
    "refunds",
    "refunds/{id}",
)
_WRITES = {
    "customers": Effect.HARMLESS,
    "customers/{id}": Effect.HARMLESS,
    "payment_methods": Effect.HARMLESS,
    "payment_methods/{id}": Effect.HARMLESS,
    "payment_methods/{id}/attach": Effect.HARMLESS,
    "payment_methods/{id}/detach": Effect.HARMLESS,
    "payment_intents": Effect.PREPARE,
    "payment_intents/{id}": Effect.CHANGE,
    "payment_intents/{id}/confirm": Effect.CONFIRM,
    "payment_intents/{id}/capture": Effect.CAPTURE,
    "payment_intents/{id}/increment_authorization": Effect.INCREMENT,
    "payment_intents/{id}/cancel": Effect.CANCEL,
    "refunds": Effect.REFUND,
}

ENDPOINTS: Mapping[str, Effect] = MappingProxyType(
    {f"GET /v1/{path}": Effect.READ for path in _READS}
    | {f"POST /v1/{path}": effect for path, effect in _WRITES.items()}
)


def _of(*paths: str) -> frozenset[str]:
    return frozenset(f"GET /v1/{path}" for path in paths)


_PAYMENT_INTENTS = _of("payment_intents", "payment_intents/{id}")

SCOPES: Mapping[Scope, frozenset[str]] = MappingProxyType(
    {
        Scope.BILLING: _PAYMENT_INTENTS
        | _of("customers/{id}")
        | {
            "POST /v1/payment_intents",
            "POST /v1/payment_intents/{id}/confirm",
            "POST /v1/payment_intents/{id}/cancel",
        },
        Scope.PLANNING: _of(
            "account",
            "customers",
            "customers/{id}",
            "customers/{id}/payment_methods",
            "payment_methods/{id}",
        ),
        Scope.RECONCILE: frozenset(name for name, effect in ENDPOINTS.items() if effect is Effect.READ)
        | {"POST /v1/payment_intents/{id}/cancel"},
        Scope.REFUND: _PAYMENT_INTENTS
        | _of("charges", "charges/{id}", "charges/{id}/refunds", "refunds", "refunds/{id}")
        | {"POST /v1/refunds"},
    }
)
"""What each scope may call. A custom key may have any part of the catalog."""

# What may stand in a segment as it is (RFC 3986, section 3.3), but for `;` and `+`, which some readers take
# for something else. The rest is escaped.
_SEGMENT = re.compile(r"(?:[A-Za-z0-9_.~=@:,!$&'()*-]|%[0-9A-Fa-f]{2})+")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_PLAIN = re.compile(r"[A-Za-z0-9_]{1,255}")
_PATH_STEPS = frozenset({".", ".."})


def is_plain_path(path: str) -> bool:
    """Return whether every reader takes a raw path (without its query) apart in the same way."""
    return path.startswith("/") and all(_is_plain(part) for part in path[1:].split("/"))


def _is_plain(segment: str) -> bool:
    if not _SEGMENT.fullmatch(segment):
        return False
    if "%" not in segment:
        return segment not in _PATH_STEPS
    try:
        return can_be_asked_for(unquote_to_bytes(segment).decode())
    except UnicodeDecodeError:
        return False


def can_be_asked_for(object_id: str) -> bool:
    """Return whether an id, percent-encoded, is one segment of a path to every reader.

    It is not where a reader that unescapes once too often, or early, would see another path: a slash, a
    backslash or a control character in it, a step up or on the spot, or what looks like an escape itself.
    """
    return (
        object_id not in _PATH_STEPS
        and object_id != ""
        and not any(
            character in "/\\" or unicodedata.category(character) in {"Cc", "Cs"} for character in object_id
        )
        and not _ESCAPE.search(object_id)
    )


def match_endpoint(method: str, path: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the catalog's name of a request and the ids in its raw path, or None where it is not in it.

    A name of the catalog outranks an id: `payment_intents/search` is no PaymentIntent. Ids of PaymentIntents
    are letters, digits and underscores, since money is counted under them.
    """
    parts = path.split("/")
    if len(parts) < 3 or parts[0] != "" or parts[1] != "v1" or ID in parts:
        return None
    plain = f"{method} {path}"
    if plain in ENDPOINTS:
        return plain, ()
    ids = tuple(parts[3::2])
    parts[3::2] = [ID] * len(ids)
    name = f"{method} {'/'.join(parts)}"
    if name not in ENDPOINTS:
        return None
    if parts[2] == "payment_intents" and not all(_PLAIN.fullmatch(object_id) for object_id in ids):
        return None
    return name, ids
