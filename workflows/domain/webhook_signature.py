"""Who sent a webhook: Stripe's signature over the raw bytes, checked by one of the secrets that we know.

The header is `Stripe-Signature: t=1930089600,v1=5257a869...[,v1=...][,v0=...]`, and `v1` is the HMAC-SHA256,
in hex digits, of `t`, a dot and the body as it was received (https://docs.stripe.com/webhooks/signature).
While a secret is being rolled Stripe signs with the old and the new one, so any match will do. Other schemes
are never believed: `v0` is for tests of Stripe's own.

Stripe's SDK refuses old timestamps and takes those of the future, however far; here the tolerance holds in
both directions, or a body that leaked once could be signed ahead for ever.
"""

import hmac
from collections.abc import Sequence
from enum import StrEnum

TOLERANCE_SECONDS = 300
SIGNATURES_MAX = 16  # an account has at most 16 endpoints; more is somebody who wants us to compare for ever
_HEADER_LENGTH_MAX = 4_096


class Refusal(StrEnum):
    """Why a webhook is not believed."""

    MISSING = "no Stripe-Signature"
    UNREADABLE = "a Stripe-Signature that can't be read"
    TOO_OLD = "signed too long ago"
    IN_THE_FUTURE = "signed in the future"
    NOT_OURS = "signed with no secret of ours"


def find_signer(
    header: str | None,
    body: bytes,
    secrets: Sequence[bytes],
    *,
    now_epoch_seconds: float,
    tolerance_seconds: float = TOLERANCE_SECONDS,
) -> int | Refusal:
    """Return which of `secrets` signed this body (its index), or why nobody did that we believe.

    Args:
        header: The value of `Stripe-Signature`; None where there was none.
        body: The body as it was received, before anything read it.
        secrets: Every secret that is good at the moment, each with its `whsec_`.
        now_epoch_seconds: Real time, since Stripe signs by it.
        tolerance_seconds: How far the signature's time may be from now, either way.
    """
    if not header:
        return Refusal.MISSING
    parts = [part.strip().partition("=") for part in header[:_HEADER_LENGTH_MAX].split(",")]
    signed_at = next((value for name, _, value in parts if name == "t"), "")
    claimed = [value.encode(errors="replace") for name, _, value in parts if name == "v1"][:SIGNATURES_MAX]
    if not claimed or not (signed_at.isascii() and signed_at.isdigit() and len(signed_at) <= 12):
        return Refusal.UNREADABLE
    signer = _match(signed_at, claimed, body, secrets)
    if signer is None:
        return Refusal.NOT_OURS
    # After the signature: who does not know a secret learns nothing about our clock.
    age_seconds = now_epoch_seconds - int(signed_at)
    if age_seconds > tolerance_seconds:
        return Refusal.TOO_OLD
    return Refusal.IN_THE_FUTURE if age_seconds < -tolerance_seconds else signer


def sign(secret: bytes, body: bytes, *, at_epoch_seconds: int) -> str:
    """Return the header for a body as Stripe would sign it, for whoever tries an endpoint of ours."""
    return f"t={at_epoch_seconds},v1={_digest(secret, str(at_epoch_seconds), body).decode()}"


def _match(signed_at: str, claimed: Sequence[bytes], body: bytes, secrets: Sequence[bytes]) -> int | None:
    # Every secret against every signature, found or not: the time it takes tells nothing.
    signer: int | None = None
    for index, secret in enumerate(secrets):
        expected = _digest(secret, signed_at, body)
        matches = [hmac.compare_digest(expected, one) for one in claimed]
        if any(matches) and signer is None:
            signer = index
    return signer


def _digest(secret: bytes, signed_at: str, body: bytes) -> bytes:
    return hmac.digest(secret, f"{signed_at}.".encode() + body, "sha256").hex().encode()
