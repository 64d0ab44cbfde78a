"""JSON as it goes out and as it is written down."""

import json
from json.encoder import c_make_encoder  # type: ignore[attr-defined]  # missing in typeshed
from typing import Any, Final


def encode_json(value: Any) -> str:
    """Return the value as compact JSON in ASCII."""
    return "".join(_ENCODE(value, 0))


def decode_json(text: str) -> Any:
    """Return the JSON value that a text begins with; what follows is not looked at."""
    return _DECODE(text)[0]


def _refuse(value: Any) -> None:
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def _make_encoder() -> Any:
    # json.dumps builds this encoder anew on every call, which costs a third of encoding a small record.
    if c_make_encoder is None:
        return json.JSONEncoder(separators=(",", ":"), check_circular=False).iterencode
    ascii_only = json.encoder.encode_basestring_ascii
    return c_make_encoder(None, _refuse, ascii_only, None, ":", ",", False, False, True)


_ENCODE: Final = _make_encoder()
_DECODE: Final = json.JSONDecoder().raw_decode
