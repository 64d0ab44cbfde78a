"""Who is calling: the API key and the account."""

import base64
import binascii
from collections.abc import Mapping

from deploy.stripe_sim.errors import ApiError
from deploy.stripe_sim.settings import Settings

_CHALLENGE = {"WWW-Authenticate": 'Basic realm="Stripe"'}


def check_key(headers: Mapping[str, str], settings: Settings) -> None:
    """Accept the API key, or raise ApiError 401, which is never stored under an idempotency key."""
    key = _read_key(headers.get("authorization", ""))
    if not key:
        message = (
            "You did not provide an API key. You need to provide your API key in the Authorization header, "
            "using Bearer auth (e.g. 'Authorization: Bearer YOUR_SECRET_KEY')."
        )
        raise ApiError(401, message, headers=_CHALLENGE)
    if settings.accept_keys is None:
        accepted = key.startswith(("sk_test_", "rk_test_"))
    else:
        accepted = key in settings.accept_keys
    if settings.revoked or not accepted:
        raise refused_key(key)


def refused_key(key: str) -> ApiError:
    """Return Stripe's answer to a key that is not valid (any more)."""
    shown = f"{key[:8]}{'*' * max(0, len(key) - 12)}{key[-4:]}"
    return ApiError(401, f"Invalid API Key provided: {shown}", headers=_CHALLENGE)


def read_account(headers: Mapping[str, str], settings: Settings) -> str:
    """Return the account that the request speaks of: its `Stripe-Account`, or the simulator's own."""
    return headers.get("stripe-account") or settings.account


def _read_key(authorization: str) -> str:
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(credentials, validate=True).decode().partition(":")[0]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""
