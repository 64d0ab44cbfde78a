"""What the proxy itself answers, in Stripe's error shape: each refusal has a code of its own.

Source of the shape: docs.stripe.com/api/errors. `Stripe-Should-Retry` speaks to the official SDKs.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from workflows.domain.verdict import CAP_EXCEEDED, PROXY_HEADER, UPSTREAM_NOT_REACHED

__all__ = ["UPSTREAM_NOT_REACHED"]

AMBIGUOUS_REQUEST: Final = "ambiguous_request"
KEY_NEEDED: Final = "key_needed"
ENDPOINT_NOT_ALLOWED: Final = "endpoint_not_allowed"
VAULT_KEY_UNKNOWN: Final = "vault_key_unknown"
UPSTREAM_NO_ANSWER: Final = "upstream_no_answer"
PROXY_FAILED: Final = "proxy_failed"
ACCOUNT_BUSY: Final = "account_busy"


@dataclass(frozen=True, slots=True)
class _Kind:
    status: int
    type: str
    message: str
    should_retry: bool | None = False


_INVALID: Final = "invalid_request_error"
KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        CAP_EXCEEDED: _Kind(429, _INVALID, "the spend cap does not allow this; nothing was sent to Stripe"),
        "lock_timeout": _Kind(
            429, _INVALID, "another request for this object is open; nothing was sent to Stripe", True
        ),
        ACCOUNT_BUSY: _Kind(
            429,
            _INVALID,
            "too many requests of this account are on the way; nothing was sent to Stripe",
            True,
        ),
        UPSTREAM_NOT_REACHED: _Kind(503, "api_error", "nothing was sent to Stripe", True),
        UPSTREAM_NO_ANSWER: _Kind(
            504, "api_error", "the request was sent and no answer came: the outcome is unknown", None
        ),
        PROXY_FAILED: _Kind(
            500, "api_error", "the proxy failed; whether anything was sent to Stripe is unknown", None
        ),
        VAULT_KEY_UNKNOWN: _Kind(401, _INVALID, "no valid vault key"),
        "vault_key_revoked": _Kind(401, _INVALID, "this vault key was revoked"),
        "vault_key_expired": _Kind(401, _INVALID, "this vault key has expired"),
        ENDPOINT_NOT_ALLOWED: _Kind(403, _INVALID, "this vault key does not allow this endpoint"),
        "account_not_allowed": _Kind(403, _INVALID, "this vault key, or this proxy, is not for this account"),
        "mode_not_allowed": _Kind(403, _INVALID, "this vault key is for the other mode, test or live"),
        "no_budget": _Kind(403, _INVALID, "this vault key has no cap, so it moves no money"),
        "held_by_another": _Kind(403, _INVALID, "another vault key's money is held for this object"),
        "currency_held": _Kind(400, _INVALID, "money is held for this object in another currency"),
        AMBIGUOUS_REQUEST: _Kind(400, _INVALID, "this can be read in more than one way; nothing was sent"),
        KEY_NEEDED: _Kind(400, _INVALID, "a request that moves money at once needs an Idempotency-Key"),
        "key_outside_window": _Kind(
            400,
            _INVALID,
            "the outcome of an earlier send of this key is open, and Stripe may have forgotten the key; "
            "nothing was sent: look the object up",
        ),
    }
)


class Refusal(Exception):
    """A request that goes no further, with the code of the answer."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """An answer of the proxy's own."""

    status: int
    code: str
    request_id: str
    headers: Mapping[str, str]
    body: bytes


def own_answer(code: str, detail: str = "") -> OwnAnswer:
    """Return the answer for a refusal or a failure; `detail` is for people and holds nothing secret."""
    kind = KINDS[code]
    request_id = f"req_proxy_{uuid.uuid4().hex[:16]}"
    headers = {"Content-Type": "application/json", "Request-Id": request_id, PROXY_HEADER: code}
    if kind.should_retry is not None:
        headers["Stripe-Should-Retry"] = "true" if kind.should_retry else "false"
    message = f"{kind.message}: {detail}" if detail else kind.message
    error = {"code": code, "message": f"Spend-cap proxy: {message}.", "type": kind.type}
    return OwnAnswer(kind.status, code, request_id, headers, json.dumps({"error": error}).encode())
