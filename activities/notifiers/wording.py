"""A notification in a few lines that people read, out of nothing but its payload: ids, counts and sums."""

from collections.abc import Iterator, Mapping
from typing import Any

from activities.notifiers.destination import Payload
from workflows.domain.counted import counted
from workflows.domain.money import format_money

_HOLDS = {
    "canary": "the first lines are through, and somebody is to look at them",
    "breaker": "going on would burn through customers",
    "cap": "the spend cap is reached",
}
_WAITS = {
    "retry": "will be tried again",
    "customer": "wait for their customers",
    "debit": "wait for a bank",
}
NAMED_MAX = 20
_CHECKS = {
    "clean": "no double charge was found at Stripe",
    "not_checked": "Stripe could not be asked about double charges: ask with chargeonce verify {run}",
}


def headline(payload: Payload) -> str:
    """Return one line: which run, and what about it."""
    run = payload.get("run")
    match payload.get("kind"):
        case "run_closed":
            return f"{run} has closed"
        case "charging_closed":
            return f"the charging of {run} is over"
        case "customer_needed":
            return f"{run}: customers have to pay by themselves"
        case "run_held":
            return f"{run} is held ({payload.get('hold')})"
        case "run_waits_for_approval":
            return f"{run} waits for approval"
        case _:
            return "chargeonce can reach this destination"


def text_of(payload: Payload) -> str:
    """Return the whole message, headline first."""
    return "\n".join([headline(payload), *_lines(payload)])


def _lines(payload: Payload) -> Iterator[str]:
    if found := payload.get("double_charges"):
        twice = counted(int(found), "line")
        yield f"DOUBLE CHARGES: {twice} paid more than once; chargeonce verify {payload.get('run')}"
    if counts := payload.get("counts"):
        told = ", ".join(
            f"{lines} {standing.replace('_', ' ')}" for standing, lines in sorted(counts.items())
        )
        yield f"{counted(payload.get('lines') or 0, 'line')}: {told}"
    moved = payload.get("moved_minor") or {}
    for currency, total in sorted((payload.get("totals") or {}).items()):
        told = f"paid or on its way {_money(moved, currency, currency)}, " if currency in moved else ""
        planned, cap = (_money(total, name, currency) for name in ("amount_minor", "cap_minor"))
        yield f"{told}planned {planned}, cap {cap}"
    match payload.get("kind"):
        case "run_closed":
            yield from _closing(payload)
        case "charging_closed":
            yield from _closing(payload)
            yield from _waiting(payload)
        case "customer_needed":
            yield from _handed_over(payload)
        case "run_held":
            yield f"{_HOLDS.get(str(payload.get('hold')), 'somebody is to look')}; nothing new is sent"
            yield f"why, and what is open: chargeonce run show {payload.get('run')}"
        case "run_waits_for_approval":
            yield f"plan {payload.get('plan_hash')}"
            yield f"look at it: chargeonce run show {payload.get('run')}"
        case _:
            yield "this is a test, sent by `chargeonce notifications test`"


def _closing(payload: Payload) -> Iterator[str]:
    if payload.get("canceled_by_request"):
        yield "it was canceled on request"
    if not payload.get("double_charges"):
        told = _CHECKS.get(str(payload.get("double_charge_check")), "double charges were not looked for")
        yield told.replace("{run}", str(payload.get("run")))
    seconds = payload.get("seconds")
    if isinstance(seconds, int | float):
        late = ", longer than its limit" if payload.get("within_limit") is False else ""
        yield f"it took {seconds:.0f} s{late}"


def _waiting(payload: Payload) -> Iterator[str]:
    """Yield what the run goes on waiting for, and until when at most."""
    for kind, waits in sorted((payload.get("waiting") or {}).items()):
        what = _WAITS.get(kind, kind)
        yield f"{waits.get('lines')} lines {what}, until {str(waits.get('until'))[:10]} at most"
    yield f"the run goes on by itself, and later runs beside it: chargeonce run show {payload.get('run')}"


def _handed_over(payload: Payload) -> Iterator[str]:
    found = payload.get("payment_intents") or []
    named = ", ".join(str(one) for one in found[:NAMED_MAX])
    more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    yield f"{payload.get('customers')} customers have to authenticate or pay on session: {named}{more}"
    yield "let each finish that very PaymentIntent, and the run settles; nothing is sent for it meanwhile"


def _money(total: Mapping[str, Any], name: str, currency: str) -> str:
    return format_money(int(total[name]), currency)
