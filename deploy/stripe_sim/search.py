"""/v1/payment_intents/search, and the query language (docs.stripe.com/search)."""

import base64
import binascii
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deploy.stripe_sim.errors import ApiError, bad_request
from deploy.stripe_sim.forms import need_text, take_text
from deploy.stripe_sim.objects import PaymentIntent
from deploy.stripe_sim.paging import take_limit
from deploy.stripe_sim.search_index import Indexed, index_intent
from deploy.stripe_sim.shapes import Json, show_payment_intent
from deploy.stripe_sim.simulator import Call

PARAMS: Final = frozenset({"query", "limit", "page", "expand"})
CLAUSES_MAX: Final = 10
URL: Final = "/v1/payment_intents/search"
_NUMBERS: Final = frozenset({"amount", "created"})
_TOKENS: Final = frozenset({"currency", "customer", "status"})
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ":": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_CLAUSE: Final = re.compile(
    r"""\s*(?P<joint>(?:AND|OR)\s+)?(?P<negated>-)?
    (?P<field>metadata\s*\[\s*(?:"(?P<dq>[^"]*)"|'(?P<sq>[^']*)')\s*\]|[a-z_.]+)
    \s*(?P<operator>:|>=|<=|>|<|~)\s*
    (?:"(?P<text>(?:[^"\\]|\\.)*)"|'(?P<quoted>(?:[^'\\]|\\.)*)'|(?P<bare>[A-Za-z0-9_.-]+))(?=\s|$)""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Clause:
    """One condition; a `text` of None asks whether the field is empty."""

    field: str
    key: str | None
    operator: str
    text: str | None
    negated: bool

    def holds(self, indexed: Indexed) -> bool:
        """Return whether an object meets the condition: exact, whatever the case of the letters."""
        return self._matches(indexed) is not self.negated

    def _matches(self, indexed: Indexed) -> bool:
        if self.field in _NUMBERS:
            return _COMPARE[self.operator](getattr(indexed, self.field), int(self.text or "0"))
        if self.field == "metadata":
            value = indexed.metadata.get(self.key or "")
        else:
            value = getattr(indexed, self.field)
        if self.text is None or value is None:
            return value is self.text
        return bool(value.casefold() == self.text.casefold())


@dataclass(frozen=True, slots=True)
class Query:
    """Clauses that must all hold, or of which one must."""

    clauses: tuple[Clause, ...]
    is_any: bool

    @property
    def only_customer(self) -> str | None:
        """Return the customer that everything found belongs to, if the query names one."""
        named = [clause.text for clause in self.clauses if clause.field == "customer" and not clause.negated]
        return None if self.is_any or not named else named[0]

    def holds(self, indexed: Indexed) -> bool:
        """Return whether an object is found."""
        return (any if self.is_any else all)(clause.holds(indexed) for clause in self.clauses)


def parse_query(text: str) -> Query:
    """Return the query, or refuse it (400)."""
    clauses: list[Clause] = []
    joints: set[str] = set()
    position = 0
    while text[position:].strip():
        match = _CLAUSE.match(text, position)
        if match is None or (match["joint"] is not None and not clauses):
            raise _unreadable(text[position:].strip())
        if clauses:
            joints.add((match["joint"] or "AND").strip())
        clauses.append(_read_clause(match))
        position = match.end()
    if not clauses:
        raise _unreadable(text)
    if len(joints) > 1:
        raise bad_request("Search queries cannot mix AND and OR.", param="query")
    if len(clauses) > CLAUSES_MAX:
        raise bad_request(f"Search queries can have up to {CLAUSES_MAX} clauses.", param="query")
    return Query(tuple(clauses), joints == {"OR"})


def search_intents(call: Call) -> Json:
    """GET /v1/payment_intents/search: what the index knows, which lags behind."""
    query = parse_query(need_text(call.params, "query"))
    limit, before = take_limit(call.params), _take_page(call)
    settings, shelf = call.simulator.settings, call.account.intents
    stale = call.simulator.search.stale(call.now, settings.search_lag_seconds)
    found: list[PaymentIntent] = []
    total = 0
    counts_all = "total_count" in (call.params.get("expand") or {}).values()
    in_order: Sequence[PaymentIntent] = shelf.in_order
    customer_id = query.only_customer
    if customer_id is not None and customer_id in shelf.by_customer:
        in_order = shelf.by_customer[customer_id]
    for intent in reversed(in_order):
        indexed = stale.get(intent.id, ...)
        indexed = index_intent(intent) if indexed is ... else indexed
        if indexed is None or not query.holds(indexed):
            continue
        total += 1
        if intent.seq < before and len(found) <= limit:
            found.append(intent)
        if len(found) > limit and not counts_all:
            break
    page, has_more = found[:limit], len(found) > limit
    shown: Json = {
        "object": "search_result",
        "data": [show_payment_intent(intent) for intent in page],
        "has_more": has_more,
        "next_page": _show_page(page[-1].seq) if has_more else None,
        "url": URL,
    }
    if counts_all:
        shown["total_count"] = total
    return shown


def _read_clause(match: re.Match[str]) -> Clause:
    field = "metadata" if match["field"].startswith("metadata") else match["field"]
    key = match["dq"] if match["dq"] is not None else match["sq"]
    if field == "metadata" and key is None:
        raise _unreadable(match[0].strip())
    quoted = match["text"] if match["text"] is not None else match["quoted"]
    text = match["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
    if field not in _NUMBERS | _TOKENS | {"metadata"}:
        message = f"Field `{field}` is an unsupported search field for resource `payment_intents`."
        raise bad_request(message, param="query")
    if field in _NUMBERS:
        if match["operator"] == "~" or not text.isdigit():
            raise bad_request(f"Field `{field}` needs a number.", param="query")
    elif match["operator"] != ":":
        message = f"Operator `{match['operator']}` is not supported for field `{field}`."
        raise bad_request(message, param="query")
    elif quoted is None and text != "null":
        raise _unreadable(match[0].strip())
    is_null = quoted is None and text == "null"
    return Clause(field, key, match["operator"], None if is_null else text, match["negated"] is not None)


def _unreadable(text: str) -> ApiError:
    message = (
        f"We were unable to parse your search query at `{text}`. Try using the format `field:value` or, for "
        "metadata, `metadata['key']:'value'` to query objects."
    )
    return bad_request(message, param="query")


def _take_page(call: Call) -> int:
    page = take_text(call.params, "page")
    if page is None:
        return len(call.account.intents.in_order)
    try:
        return int(base64.urlsafe_b64decode(page).decode())
    except (binascii.Error, ValueError) as error:
        raise bad_request("Invalid page.", param="page") from error


def _show_page(seq: int) -> str:
    return base64.urlsafe_b64encode(str(seq).encode()).decode()
