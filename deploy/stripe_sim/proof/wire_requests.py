"""The requests of a billing run as bytes, as an SDK sends them."""

import hashlib
import json
from typing import Any, Final

CUSTOMERS_MAX: Final = 10_000
_HEAD: Final = (
    "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Stripe/v1 PythonBindings/16.1.0\r\n"
    'X-Stripe-Client-User-Agent: {{"bindings_version": "16.1.0", "lang": "python"}}\r\n'
    "Authorization: Bearer sk_test_proof\r\nStripe-Version: 2026-10-28.endive\r\n"
    "Content-Type: application/x-www-form-urlencoded\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"
    "Idempotency-Key: {key}\r\nContent-Length: {length}\r\n\r\n"
)


def make_post(path: str, form: str, key: str) -> bytes:
    """Return a POST with its form and its idempotency key."""
    return (_HEAD.format(path=path, key=key, length=len(form)) + form).encode()


def make_create(number: int) -> bytes:
    """Return the create of the charge of this number."""
    identity = _identity(number)
    customer = number % CUSTOMERS_MAX
    form = (
        f"amount={1_000 + number % 5_000}&currency=usd&customer=cus_{customer}"
        f"&payment_method=pm_card_visa_{customer}&metadata[charge_identity]={identity}"
        f"&metadata[create_key]=create_{identity}_v1&metadata[run]=run-2026-09&description=Subscription+2026-09"
    )
    return make_post("/v1/payment_intents", form, f"create_{identity}_v1")


def make_confirm(number: int, intent_id: str) -> bytes:
    """Return the confirm of the charge of this number."""
    key = f"confirm_{_identity(number)}_v1"
    return make_post(f"/v1/payment_intents/{intent_id}/confirm", "off_session=true", key)


def make_seed(count: int) -> dict[str, Any]:
    """Return the customers that so many charges need, each with a good card."""
    return {
        "customers": [
            {"id": f"cus_{number}", "payment_methods": [{"id": f"pm_card_visa_{number}"}]}
            for number in range(min(count, CUSTOMERS_MAX))
        ]
    }


def read_intent_id(answer: bytes) -> str:
    """Return the id of the PaymentIntent in an answer; raises RuntimeError for any answer but a success."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"the simulator answered {answer[:500]!r}")
    found: str = json.loads(body)["id"]
    return found


def _identity(number: int) -> str:
    return hashlib.blake2b(str(number).encode(), digest_size=16).hexdigest()
