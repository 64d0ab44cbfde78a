"""Form bodies, read so strictly that Stripe can't read them otherwise.

What is decided on here is what Stripe executes, so a body that two readers might take apart differently is
refused. The body itself is passed on as it came.
"""

import re
from urllib.parse import unquote_to_bytes

FORM_TYPE = "application/x-www-form-urlencoded"

_NAME = re.compile(r"[A-Za-z0-9_.-]+(?:\[[A-Za-z0-9_.-]*\])*", re.ASCII)
_ESCAPES = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*")
_WHOLE = re.compile(r"0|[1-9][0-9]{0,14}", re.ASCII)
_CURRENCY = re.compile(r"[A-Za-z]{3}", re.ASCII)

# Names that a decision rests on, in lower case: each may stand once, plainly, and spelled so.
DECISIVE = frozenset(
    {"amount", "amount_to_capture", "amount_to_confirm", "charge", "confirm", "currency", "payment_intent"}
)


class Ambiguous(Exception):
    """A request that can be read in more than one way; the message says how, without repeating values."""


def parse_form(body: bytes) -> dict[str, str]:
    """Return the parameters of a form body, nested names as they are spelled. Raises Ambiguous."""
    if not body:
        return {}
    try:
        text = body.decode("ascii")
    except UnicodeDecodeError:
        raise Ambiguous("the body has bytes that a form escapes") from None
    if any(character in text for character in ";\x00\r\n\t ") or not _ESCAPES.fullmatch(text):
        raise Ambiguous("the body has characters that a form escapes")
    parameters: dict[str, str] = {}
    for pair in text.split("&"):
        escaped_name, equals, escaped_value = pair.partition("=")
        if not equals or not escaped_name:
            raise Ambiguous("a parameter has no name or no value")
        name = _unescape(escaped_name)
        if not _NAME.fullmatch(name):
            raise Ambiguous("a parameter's name is unusual")
        root = name.partition("[")[0].lower()
        if root in DECISIVE and name not in DECISIVE:
            raise Ambiguous(f"{root} is spelled in an unusual way")
        if name in parameters and (name in DECISIVE or not name.endswith("[]")):
            raise Ambiguous("a parameter stands twice")
        parameters[name] = _unescape(escaped_value)
    return parameters


def whole_number(parameters: dict[str, str], name: str) -> int | None:
    """Return an amount, None where it is not given. Raises Ambiguous unless plain decimal digits."""
    text = parameters.get(name)
    if text is None:
        return None
    if not _WHOLE.fullmatch(text):
        raise Ambiguous(f"{name} is not a plain whole number")
    return int(text)


def truth(parameters: dict[str, str], name: str) -> bool:
    """Return a boolean, False where it is not given. Raises Ambiguous unless `true` or `false`."""
    text = parameters.get(name, "false")
    if text not in {"true", "false"}:
        raise Ambiguous(f"{name} is neither true nor false")
    return text == "true"


def currency_of(parameters: dict[str, str]) -> str | None:
    """Return the currency in lower case, None where it is not given. Raises Ambiguous unless 3 letters."""
    text = parameters.get("currency")
    if text is None:
        return None
    if not _CURRENCY.fullmatch(text):
        raise Ambiguous("currency is not three letters")
    return text.lower()


def _unescape(text: str) -> str:
    try:
        return unquote_to_bytes(text.replace("+", " ")).decode("utf-8")
    except UnicodeDecodeError:
        raise Ambiguous("a parameter is not UTF-8") from None
