"""Answers held against the SDK's own annotations, all the way down.

The SDK leaves its enumerations open (`Literal[...] | str`); here they are closed on purpose. A field that is
not Optional must be there; a field that the SDK does not know must not.
"""

import types
from typing import Any, ForwardRef, Literal, Union, get_args, get_origin

import stripe
from stripe._list_object import ListObject
from stripe._search_result_object import SearchResultObject
from stripe._stripe_object import StripeObject, UntypedStripeObject

KINDS: dict[str, type] = {
    kind.OBJECT_NAME: kind
    for kind in (
        *(stripe.Account, stripe.Balance, stripe.BalanceTransaction, stripe.Charge, stripe.Customer),
        *(stripe.Dispute, stripe.Event, stripe.PaymentIntent, stripe.PaymentMethod, stripe.Refund),
        stripe.WebhookEndpoint,
    )
}
# The SDK names these differently inside its own modules.
_ALIASES = {"CardResource": "Card", "DisputeResource": "Dispute"}
_LIST_FIELDS = {"object", "data", "has_more", "url"}
_SEARCH_FIELDS = _LIST_FIELDS | {"next_page"}
_STUB_FIELDS = {"id", "object", "deleted"}


def check_answer(shown: Any, path: str) -> list[str]:
    """Return what is wrong with the body of an answer, whatever object it is."""
    if "error" in shown:
        return _check_fields(shown["error"], stripe.ErrorObject, f"{path}: error")
    name = shown.get("object")
    if name == "list":
        return _check_list(shown, _LIST_FIELDS, path)
    if name == "search_result":
        return _check_list(shown, _SEARCH_FIELDS, path, {"total_count"})
    if name not in KINDS:
        return [f"{path}: no object is called {name!r}"]
    return check_object(shown, KINDS[name], path)


def check_object(shown: Any, kind: type, path: str) -> list[str]:
    """Return what is wrong with one object."""
    if shown.get("deleted") is True:
        fields = set(shown)
        return [] if fields == _STUB_FIELDS else [f"{path}: a stub has id, object, deleted, not {fields}"]
    problems = _check_fields(shown, kind, path)
    if kind is stripe.Event:
        problems += check_answer(shown["data"]["object"], f"{path}.data.object")
    return problems


def _check_list(shown: Any, fields: set[str], path: str, optional: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
    problems = [] if set(shown) - optional == fields else [f"{path}: fields {sorted(shown)}"]
    for index, item in enumerate(shown["data"]):
        problems += check_answer(item, f"{path}.data[{index}]")
    return problems


def _check_fields(shown: Any, kind: type, path: str) -> list[str]:
    if not isinstance(shown, dict):
        return [f"{path}: {shown!r} is no {kind.__name__}"]
    hints = {name: hint for name, hint in vars(kind)["__annotations__"].items() if name != "OBJECT_NAME"}
    problems = [f"{path}.{name}: unknown to {kind.__qualname__}" for name in shown if name not in hints]
    for name, hint in hints.items():
        if name in shown:
            problems += _check_value(shown[name], hint, f"{path}.{name}")
        elif not _allows_none(hint):
            problems.append(f"{path}.{name}: missing")
    return problems


def _allows_none(hint: Any) -> bool:
    return type(None) in get_args(hint)


def _check_value(value: Any, hint: Any, path: str) -> list[str]:  # noqa: PLR0911 - one per kind of hint
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return []
    if origin in {Union, types.UnionType}:
        return _check_union(value, args, path)
    if origin is Literal:
        return [] if value in args else [f"{path}: {value!r} is none of {args}"]
    if isinstance(hint, ForwardRef | str):
        return _check_value(value, _resolve(hint), path)
    if origin is list:
        if not isinstance(value, list):
            return [f"{path}: {value!r} is no list"]
        return [
            problem
            for index, item in enumerate(value)
            for problem in _check_value(item, args[0], f"{path}[{index}]")
        ]
    if origin is UntypedStripeObject:
        if not isinstance(value, dict):
            return [f"{path}: {value!r} is no hash"]
        return [
            problem
            for name, item in value.items()
            for problem in _check_value(item, args[0], f"{path}[{name}]")
        ]
    if origin is ListObject:
        return _check_list(value, _LIST_FIELDS, path)
    if origin is SearchResultObject:
        return _check_list(value, _SEARCH_FIELDS, path)
    if isinstance(hint, type) and issubclass(hint, StripeObject):
        return check_object(value, hint, path) if isinstance(value, dict) else [f"{path}: {value!r}"]
    if hint is float:
        return [] if type(value) in {int, float} else [f"{path}: {value!r} is no number"]
    return [] if type(value) is hint else [f"{path}: {value!r} is no {hint}"]


def _check_union(value: Any, args: tuple[Any, ...], path: str) -> list[str]:
    if value is None:
        return [] if type(None) in args else [f"{path}: null"]
    options = [option for option in args if option is not type(None)]
    literals = [option for option in options if get_origin(option) is Literal]
    if isinstance(value, str) and literals:
        return _check_value(value, literals[0], path)
    if isinstance(value, dict) and "object" in value:
        named = KINDS.get(value["object"])
        resolved = [_resolve(option) for option in options if isinstance(option, ForwardRef)]
        if named in resolved or named in options:
            assert named is not None
            return check_object(value, named, path)
    tried = [_check_value(value, option, path) for option in options]
    return min(tried, key=len)


def _resolve(hint: Any) -> Any:
    name = hint.__forward_arg__ if isinstance(hint, ForwardRef) else hint
    return getattr(stripe, _ALIASES.get(name, name), StripeObject)
