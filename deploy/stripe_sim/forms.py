"""Form-encoded parameters, with Stripe's nested brackets, and the checks that all endpoints need."""

from typing import Any
from urllib.parse import unquote_plus

from deploy.stripe_sim.errors import bad_request

METADATA_KEYS_MAX = 50
METADATA_KEY_CHARACTERS_MAX = 40
METADATA_VALUE_CHARACTERS_MAX = 500
PAGE_SIZE_MAX = 100
DEPTH_MAX = 8
FIELDS_MAX = 1_000

Params = dict[str, Any]


def parse_form(text: str) -> tuple[Params, list[tuple[str, str]]]:
    """Return the nested parameters and the flat pairs they came from."""
    if text.count("&") >= FIELDS_MAX:
        raise bad_request(f"A request can have up to {FIELDS_MAX} parameters.")
    pairs = [_split_field(item) for item in text.split("&") if item]
    params: Params = {}
    for name, value in pairs:
        if "[" not in name:
            params[name] = value
            continue
        _put_nested(params, name, value)
    return params, pairs


def _split_field(item: str) -> tuple[str, str]:
    name, _, value = item.partition("=")
    # Most fields have nothing to decode, and urllib's parse_qsl takes several times as long.
    if "%" in item or "+" in item:
        return unquote_plus(name), unquote_plus(value)
    return name, value


def _put_nested(params: Params, name: str, value: str) -> None:
    head, _, rest = name.partition("[")
    path = [head, *rest.removesuffix("]").split("][")]
    if not name.endswith("]") or not head or len(path) > DEPTH_MAX:
        raise bad_request(f"Invalid parameter name: {name}", param=name)
    node = params
    for step in path[:-1]:
        inner = node.setdefault(step, {})
        if not isinstance(inner, dict):
            raise bad_request(f"Invalid parameter: {name}", param=name)
        node = inner
    last = path[-1] or str(len(node))
    node[last] = value


def refuse_unknown(
    params: Params, allowed: frozenset[str], *, inside: str = "", unmodelled: frozenset[str] = frozenset()
) -> None:
    """Refuse parameters that the endpoint does not have (400 `parameter_unknown`), or has only at Stripe."""
    unknown = [f"{inside}[{name}]" if inside else name for name in params if name not in allowed]
    if unknown:
        plural = "s" if len(unknown) > 1 else ""
        if unmodelled.issuperset(unknown):
            message = f"Stripe has the parameter{plural} {', '.join(unknown)}; this simulator does not."
            raise bad_request(message, code="parameter_unknown", param=unknown[0])
        message = f"Received unknown parameter{plural}: {', '.join(unknown)}"
        raise bad_request(message, code="parameter_unknown", param=unknown[0])


def take_text(params: Params, name: str, *, characters_max: int = 5_000) -> str | None:
    """Return a string, or None when the parameter is absent or empty."""
    value = params.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise bad_request(f"Invalid string: {name}", param=name)
    if len(value) > characters_max:
        raise bad_request(f"Invalid string: {name} must be at most {characters_max} characters", param=name)
    return value


def need_text(params: Params, name: str) -> str:
    """Return a string that must be there (400 `parameter_missing`)."""
    value = take_text(params, name)
    if value is None:
        raise bad_request(f"Missing required param: {name}.", code="parameter_missing", param=name)
    return value


def take_integer(params: Params, name: str) -> int | None:
    """Return an integer, or None when absent (400 `parameter_invalid_integer`)."""
    value = take_text(params, name)
    if value is None:
        return None
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        raise bad_request(f"Invalid integer: {value}", code="parameter_invalid_integer", param=name)
    return int(value)


def take_boolean(params: Params, name: str) -> bool:
    """Return a boolean, false when absent."""
    value = params.get(name)
    if value is None or value == "":
        return False
    if value not in {"true", "false"}:
        raise bad_request(f"Invalid boolean: {value}", param=name)
    return bool(value == "true")


def take_choice(params: Params, name: str, choices: tuple[str, ...]) -> str | None:
    """Return one of the choices, or None when absent."""
    value = take_text(params, name)
    if value is not None and value not in choices:
        raise bad_request(f"Invalid {name}: must be one of {', '.join(choices)}", param=name)
    return value


def take_list(params: Params, name: str) -> list[str]:
    """Return the items of `name[]` or `name[0]`."""
    value = params.get(name)
    if value is None or value == "":
        return []
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise bad_request(f"Invalid array: {name}", param=name)
    return list(value.values())


def take_hash(params: Params, name: str) -> Params:
    """Return a nested hash, empty when absent."""
    value = params.get(name)
    if value is None or value == "":
        return {}
    if not isinstance(value, dict):
        raise bad_request(f"Invalid object: {name}", param=name)
    return value


def merge_metadata(params: Params, before: dict[str, str]) -> dict[str, str]:
    """Return the metadata after this request, within Stripe's limits (docs.stripe.com/metadata)."""
    value = params.get("metadata")
    if value is None:
        return before
    if value == "":
        return {}
    given = take_hash(params, "metadata")
    merged = dict(before)
    for key, text in given.items():
        where = f"metadata[{key}]"
        if not isinstance(text, str):
            raise bad_request("Metadata values must be strings", param=where)
        if len(key) > METADATA_KEY_CHARACTERS_MAX:
            raise bad_request(
                f"Metadata keys can have up to {METADATA_KEY_CHARACTERS_MAX} characters", param=where
            )
        if len(text) > METADATA_VALUE_CHARACTERS_MAX:
            raise bad_request(
                f"Metadata values can have up to {METADATA_VALUE_CHARACTERS_MAX} characters", param=where
            )
        if text:
            merged[key] = text
        else:
            merged.pop(key, None)
    if len(merged) > METADATA_KEYS_MAX:
        raise bad_request(f"Metadata can have up to {METADATA_KEYS_MAX} keys", param="metadata")
    return merged
