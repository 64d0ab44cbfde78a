"""A retry policy as a TOML file: read with every mistake named by its key, and printed with what it means."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput
from workflows.domain.retry_policy import (
    CUSTOMER_DAYS_MAX,
    DEBIT_DAYS_MAX,
    DEFAULT_POLICY,
    RETRIES_MAX,
    RETRY_DAYS_MAX,
    Method,
    RetryPolicy,
    RetryRule,
)

FILE_BYTES_MAX = 100_000
RULES_MAX = 50
CODES_MAX = 200
CODE_CHARACTERS_MAX = 100
_CODES = ("decline_codes", "advice_codes", "network_advice_codes")
_RULE_KEYS = frozenset({"name", "retry_after_days", "payment_method", *_CODES})
_OTHERWISE_KEYS = frozenset({"retry_after_days", "payment_method"})
_HEAD = f"""\
# What a run does, over days, about what is not paid at the end of its charging. It is frozen with the run.
# For a decline the first rule that names a code of it applies, else [otherwise].
#
# retry_after_days      days from the first decline, rising, at least 1 apart, since for a day Stripe only
#                       repeats the decline; at most {RETRIES_MAX}, up to day {RETRY_DAYS_MAX}; [] is never
# payment_method        "re-resolve": the customer's default of that day, else the one that was declined
#                       "same": the one that was declined
#                       "replaced": the default of that day, and only if it is another one
# decline_codes         https://docs.stripe.com/declines/codes
# advice_codes          try_again_later, do_not_try_again, confirm_card_data
# network_advice_codes  the card network's own, such as Mastercard's 03 (do not try again)
"""
_TOP_KEYS = frozenset({"rule", "otherwise", "needs_customer", "processing"})


def read_retry_policy(path: Path) -> RetryPolicy:
    """Return the policy in a file; what it leaves out is as in the default policy, its rules excepted.

    Raises:
        InvalidInput: The file can't be read, or a key of it is unknown or wrong: the message names it.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path}: can't be read: {error.strerror}") from None
    if len(text) > FILE_BYTES_MAX:
        raise InvalidInput(f"{path}: longer than {FILE_BYTES_MAX:,} bytes")
    try:
        return parse_retry_policy(text.decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidInput(f"{path}: is not UTF-8") from None
    except InvalidInput as wrong:
        raise InvalidInput(f"{path}: {wrong.reason}") from None


def parse_retry_policy(text: str) -> RetryPolicy:
    """Return the policy that a TOML text says. Raises InvalidInput as `read_retry_policy`."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"not TOML: {error}") from None
    _refuse_unknown(document, _TOP_KEYS, "")
    rules = document.get("rule", [])
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise InvalidInput("rule: is written [[rule]], once for each")
    if len(rules) > RULES_MAX:
        raise InvalidInput(f"rule: at most {RULES_MAX} of them, not {len(rules)}")
    default = DEFAULT_POLICY
    return RetryPolicy(
        rules=tuple(_rule(rule, f"rule[{number}].") for number, rule in enumerate(rules, start=1)),
        otherwise=_otherwise(_table(document, "otherwise")),
        customer_days=_days(
            _table(document, "needs_customer"), "needs_customer.", default.customer_days, CUSTOMER_DAYS_MAX
        ),
        debit_days=_days(_table(document, "processing"), "processing.", default.debit_days, DEBIT_DAYS_MAX),
    )


def render_retry_policy(policy: RetryPolicy) -> str:
    """Return a policy as the TOML that `parse_retry_policy` reads, with comments for whoever changes it."""
    return "\n".join([*_render(policy), ""])


def _render(policy: RetryPolicy) -> Iterator[str]:
    yield from _HEAD.splitlines()
    for rule in policy.rules:
        yield ""
        yield "[[rule]]"
        yield f"name = {_quoted(rule.name)}"
        yield from _render_delays(rule)
        for name in _CODES:
            yield from _render_codes(name, getattr(rule, name))
    yield ""
    yield "[otherwise]"
    yield from _render_delays(policy.otherwise)
    yield ""
    yield "# The customer has to authenticate or pay by themselves: handed over once, asked about daily. Then"
    yield "# the run gives up; the line stays needs_customer, and a later run may charge it again."
    yield "[needs_customer]"
    yield f"give_up_after_days = {policy.customer_days}  # up to {CUSTOMER_DAYS_MAX}; 0 is not at all"
    yield ""
    yield "# A debit is on its way: asked about daily. One that fails is a decline like any other."
    yield "[processing]"
    yield f"give_up_after_days = {policy.debit_days}  # up to {DEBIT_DAYS_MAX}; 0 is not at all"


def _render_delays(rule: RetryRule) -> Iterator[str]:
    yield f"retry_after_days = [{', '.join(str(day) for day in rule.retry_after_days)}]"
    if rule.retry_after_days:
        yield f'payment_method = "{rule.payment_method}"'


def _render_codes(name: str, codes: tuple[str, ...]) -> Iterator[str]:
    if len(codes) > 3:
        yield f"{name} = ["
        yield from (f"    {_quoted(code)}," for code in codes)
        yield "]"
    elif codes:
        yield f"{name} = [{', '.join(_quoted(code) for code in codes)}]"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _rule(table: Mapping[str, Any], where: str) -> RetryRule:
    _refuse_unknown(table, _RULE_KEYS, where)
    name = table.get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= CODE_CHARACTERS_MAX or not name.isprintable():
        raise InvalidInput(f"{where}name: a text of 1 to {CODE_CHARACTERS_MAX} characters, on one line")
    if "retry_after_days" not in table:
        raise InvalidInput(f"{where}retry_after_days: is missing; [] is never")
    codes = {kind: _code_list(table.get(kind, []), f"{where}{kind}") for kind in _CODES}
    if not any(codes.values()):
        raise InvalidInput(f"{where}decline_codes: the rule names no code, so it never applies")
    return RetryRule(
        name,
        _delays(table["retry_after_days"], f"{where}retry_after_days"),
        _method(table.get("payment_method", Method.RE_RESOLVE), f"{where}payment_method"),
        **codes,
    )


def _otherwise(table: Mapping[str, Any]) -> RetryRule:
    _refuse_unknown(table, _OTHERWISE_KEYS, "otherwise.")
    default = DEFAULT_POLICY.otherwise
    return RetryRule(
        default.name,
        _delays(table.get("retry_after_days", list(default.retry_after_days)), "otherwise.retry_after_days"),
        _method(table.get("payment_method", default.payment_method), "otherwise.payment_method"),
    )


def _delays(value: object, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(_is_whole(day) for day in value):
        raise InvalidInput(f"{where}: a list of whole days, such as [3, 5, 7]")
    try:
        return RetryRule(where, tuple(value)).retry_after_days
    except InvalidInput as wrong:
        raise InvalidInput(wrong.reason.removeprefix("rule ")) from None


def _method(value: object, where: str) -> Method:
    try:
        return Method(value)  # type: ignore[arg-type]  # anything else than one of them raises
    except ValueError:
        raise InvalidInput(f"{where}: {' or '.join(Method)}, not {echo(str(value))}") from None


def _code_list(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > CODES_MAX:
        raise InvalidInput(f"{where}: a list of at most {CODES_MAX} codes")
    for code in value:
        if not isinstance(code, str) or not 1 <= len(code) <= CODE_CHARACTERS_MAX or not code.isprintable():
            raise InvalidInput(f'{where}: codes are texts, such as "insufficient_funds" or "03"')
    return tuple(value)


def _days(table: Mapping[str, Any], where: str, default: int, days_max: int) -> int:
    _refuse_unknown(table, frozenset({"give_up_after_days"}), where)
    value = table.get("give_up_after_days", default)
    if not _is_whole(value) or not 0 <= value <= days_max:
        raise InvalidInput(f"{where}give_up_after_days: whole days, 0 to {days_max}")
    return int(value)


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise InvalidInput(f"{name}: is a table, written [{name}]")
    return table


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refuse_unknown(table: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    unknown = sorted(table.keys() - known)
    if unknown:
        raise InvalidInput(
            f"{echo(where + unknown[0])}: there is no such key, only {', '.join(sorted(known))}"
        )
