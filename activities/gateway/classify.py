"""Stripe's JSON and headers, read into our own values. Everything in them is text from outside.

Texts are cut, stripped of control characters and of anything that looks like a key before they leave; a
PaymentIntent whose deciding fields can't be read is no PaymentIntent, so the outcome stays unknown.
"""

import re
import unicodedata
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache
from types import MappingProxyType

from workflows.domain.answer import Answer, PaymentIntent, Transport
from workflows.domain.verdict import PROXY_HEADER

MESSAGE_LENGTH_MAX = 500
WORD_LENGTH_MAX = 255
RETRY_AFTER_SECONDS_MAX = 3600.0
METADATA_PREFIX = "chargeonce_"  # other metadata may be personal data: it is none of our business
REDACTED = "[key]"
NO_HEADERS: Mapping[str, str] = MappingProxyType({})

_SECRET_LIKE = re.compile(
    r"\b(?:(?:sk|rk|pk|whsec)_[A-Za-z0-9_*]{4,}|vk_(?:test|live)_[0-9A-Za-z]{11,})"  # 10 are a public id
)
_UNWANTED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


class AnswerReader:
    """Reads answers and keeps one secret, the API key, out of everything it returns."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def answer(self, status: int, headers: Mapping[str, str], body: Mapping[str, object]) -> Answer:
        """Return the Answer for a complete HTTP answer with a JSON object as its body."""
        error = _mapping(body.get("error"))
        intent = body if error is None else _mapping(error.get("payment_intent"))
        error = error or {}
        return Answer(
            transport=Transport.ANSWERED,
            http_status=status,
            payment_intent=self.payment_intent(intent),
            error_type=self.word(error.get("type")),
            code=self.word(error.get("code")),
            decline_code=self.word(error.get("decline_code")),
            advice_code=self.word(error.get("advice_code")),
            network_decline_code=self.word(error.get("network_decline_code")),
            network_advice_code=self.word(error.get("network_advice_code")),
            message=self.text(error.get("message")),
            replayed=headers.get("Idempotent-Replayed", "").strip().lower() == "true",
            request_id=self.word(headers.get("Request-Id")),
            stripe_epoch_seconds=read_stripe_clock(headers),
            retry_after_seconds=read_retry_after(headers),
            rate_limited_reason=self.word(headers.get("Stripe-Rate-Limited-Reason")),
        )

    def no_answer(
        self,
        transport: Transport,
        message: str,
        *,
        status: int | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Answer:
        """Return the Answer for a request without a readable answer; what headers came are kept."""
        return Answer(
            transport=transport,
            http_status=status,
            message=self.text(message),
            request_id=self.word(headers.get("Request-Id")),
            stripe_epoch_seconds=read_stripe_clock(headers),
            retry_after_seconds=read_retry_after(headers),
        )

    def payment_intent(self, body: Mapping[str, object] | None) -> PaymentIntent | None:
        """Return the PaymentIntent in `body`, or None where it is none or lacks a field that decides."""
        if body is None or body.get("object") != "payment_intent":
            return None
        intent_id, status = _exact(body.get("id")), _exact(body.get("status"))
        currency = _exact(body.get("currency"))
        amount_minor, created = _whole(body.get("amount")), _whole(body.get("created"))
        if intent_id is None or status is None or currency is None or amount_minor is None or created is None:
            return None
        last_error = _mapping(body.get("last_payment_error")) or {}
        metadata = _mapping(body.get("metadata")) or {}
        return PaymentIntent(
            id=intent_id,
            status=status,
            amount_minor=amount_minor,
            currency=currency,
            created_epoch_seconds=created,
            customer=_id_of(body.get("customer")),
            payment_method=_id_of(body.get("payment_method")),
            latest_charge=_id_of(body.get("latest_charge")),
            last_error_code=self.word(last_error.get("code")),
            last_decline_code=self.word(last_error.get("decline_code")),
            last_advice_code=self.word(last_error.get("advice_code")),
            last_network_advice_code=self.word(last_error.get("network_advice_code")),
            metadata={
                name: self.text(value) or ""
                for name, value in metadata.items()
                if name.startswith(METADATA_PREFIX)
            },
        )

    def word(self, value: object) -> str | None:
        """Return a short text such as a code or an id, or None where there is none."""
        return self.text(value, WORD_LENGTH_MAX)

    def text(self, value: object, length_max: int = MESSAGE_LENGTH_MAX) -> str | None:
        """Return a text from outside, made harmless: cut, one line, no control characters, no keys."""
        if not isinstance(value, str) or not value:
            return None
        text = value
        if self._secret:
            text = text.replace(self._secret, REDACTED)
        if "k_" in text or "whsec_" in text:  # cheaper than the search, which needs one of them
            text = _SECRET_LIKE.sub(REDACTED, text)
        text = text[: 2 * length_max]
        if not text.isprintable():
            text = "".join(_harmless(character) for character in text)
        return text[:length_max]


def read_stripe_clock(headers: Mapping[str, str]) -> float | None:
    """Return what Stripe's clock says (seconds since the epoch, one-second grain), or None.

    The proxy's own answers have the date of another machine, and say nothing about Stripe's clock.
    """
    return None if PROXY_HEADER in headers else read_date(headers.get("Date"))


@lru_cache(maxsize=64)  # thousands of answers share a second, and parsing is dear
def read_date(value: str | None) -> float | None:
    """Return an HTTP date as seconds since the epoch (one-second grain), or None if it can't be read."""
    if not value:
        return None
    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError, TypeError, OSError):
        return None


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that `Retry-After` asks to wait, 0 to 3600, or None.

    A date is taken relative to the answer's own `Date`, so no clock of ours enters.
    """
    value = headers.get("Retry-After")
    if value is None:
        return None
    value = value.strip()
    if re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", value):
        return min(float(value), RETRY_AFTER_SECONDS_MAX)
    retry_at, answered_at = read_date(value), read_date(headers.get("Date"))
    if retry_at is None or answered_at is None:
        return None
    return min(max(retry_at - answered_at, 0.0), RETRY_AFTER_SECONDS_MAX)


def _harmless(character: str) -> str:
    if character in "\r\n\t":
        return " "
    return "" if unicodedata.category(character) in _UNWANTED_CATEGORIES else character


def _mapping(value: object) -> Mapping[str, object] | None:
    return value if isinstance(value, dict) else None


def _exact(value: object) -> str | None:
    """Identifiers are taken exactly as they are or not at all."""
    if (
        isinstance(value, str)
        and 0 < len(value) <= WORD_LENGTH_MAX
        and value.isascii()
        and value.isprintable()
    ):
        return value
    return None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _id_of(value: object) -> str | None:
    """A reference is an id, or the whole object where it was expanded."""
    return _exact(value.get("id") if isinstance(value, dict) else value)
