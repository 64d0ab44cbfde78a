"""The signature of our webhooks: `Chargeonce-Signature: t=1930089600,v1=5257a869...`.

`t` is the time of the try in seconds since 1970, and `v1` the HMAC-SHA256, as hex digits, of `t`, a dot and
the body exactly as it was received, keyed with the secret that both sides know
(CHARGEONCE_NOTIFY_WEBHOOK_SECRET).

A receiver reads the raw body, computes the same and compares in constant time; it refuses a `t` that is more
than five minutes away from its clock: `is_genuine` does all of this. And it remembers the `id` in the body,
which is the same for every try: whoever has seen it answers 200 and does no more.
"""

import hashlib
import hmac

HEADER = "Chargeonce-Signature"
TOLERANCE_SECONDS = 300


def sign(secret: str, body: bytes, *, at_epoch_seconds: int) -> str:
    """Return the header's value for a body sent at a time."""
    return f"t={at_epoch_seconds},v1={_digest(secret, str(at_epoch_seconds), body)}"


def is_genuine(header: str, body: bytes, secret: str, *, now_epoch_seconds: float) -> bool:
    """Return whether whoever sent this body knows the secret and sent it within the last five minutes."""
    parts = [part.strip().partition("=") for part in header.split(",")]
    sent_at = next((value for name, _, value in parts if name == "t"), "")
    claimed = [value for name, _, value in parts if name == "v1"]
    if not (sent_at.isascii() and sent_at.isdigit()) or len(sent_at) > 12:
        return False
    if abs(now_epoch_seconds - int(sent_at)) > TOLERANCE_SECONDS:
        return False
    expected = _digest(secret, sent_at, body).encode()
    return any(hmac.compare_digest(expected, one.encode(errors="replace")) for one in claimed)


def _digest(secret: str, sent_at: str, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{sent_at}.".encode() + body, hashlib.sha256).hexdigest()
