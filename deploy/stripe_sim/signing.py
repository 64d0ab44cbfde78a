"""The `Stripe-Signature` header (docs.stripe.com/webhooks/signature)."""

import hashlib
import hmac


def sign(body: bytes, secrets: list[str], *, at_seconds: int) -> str:
    """Return the header: one `v1` per secret that is good at the moment.

    The whole secret is the key, `whsec_` included.
    """
    signed = f"{at_seconds}.".encode() + body
    marks = [f"v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}" for secret in secrets]
    return ",".join([f"t={at_seconds}", *marks])
