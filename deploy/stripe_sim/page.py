"""GET /_sim/: one page that a person can read while a drill runs. No script, everything escaped."""

import json
import time
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

from deploy.stripe_sim.admin import summarize
from deploy.stripe_sim.simulator import Simulator

ROWS_SHOWN: Final = 40
REFRESH_SECONDS: Final = 2
_STYLE: Final = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 90rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1rem; margin: 1.5rem 0 .3rem; }
table { border-collapse: collapse; width: 100%; font: 12px/1.4 ui-monospace, monospace; }
th, td { border-bottom: 1px solid #8884; padding: .15rem .5rem; text-align: left; white-space: nowrap; }
td:last-child { white-space: normal; overflow-wrap: anywhere; }
.bad { color: #c00; font-weight: bold; } .good { color: #080; } .none { color: #888; }
:root { color-scheme: light dark; }
"""


def render_page(simulator: Simulator, query: dict[str, str]) -> str:
    """Return the page; `identity` in the query names the metadata key that the book is added up by."""
    identity = query.get("identity") or simulator.book.identity_in_use
    summary = summarize(simulator, identity)
    doubles = summary.pop("double_charges")
    parts = [
        f"<h1>Stripe simulator</h1><p>{_show_clock(simulator)}; seed {simulator.seed}</p>",
        _section(
            "Book", _table(("what", "value"), [(name, _text(value)) for name, value in summary.items()])
        ),
        _show_doubles(doubles, identity),
        _section("Money given back", _show_returns(simulator)),
        _section("Faults", _show_faults(simulator)),
        _section("Latest requests", _show_requests(simulator)),
        _section("Latest webhooks", _show_webhooks(simulator)),
    ]
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Stripe simulator</title>"
        f'<meta http-equiv=refresh content="{REFRESH_SECONDS}"><style>{_STYLE}</style>'
        f"<body>{''.join(parts)}</body></html>"
    )


def _show_clock(simulator: Simulator) -> str:
    clock = simulator.clock
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(clock.now()))
    frozen = ", standing still" if clock.frozen_at is not None else ""
    return f"{shown}, {clock.offset_seconds:+.0f} s against real time{frozen}"


def _show_doubles(doubles: list[dict[str, Any]], identity: str | None) -> str:
    named = f"metadata {escape(identity)}" if identity else "PaymentIntent"
    if not doubles:
        return f"<p class=good>No double charge, by {named}.</p>"
    rows = [
        (
            double["account"],
            double["identity"],
            f"{double['amount']} {double['currency']}",
            _text(double["payment_intents"]),
        )
        for double in doubles[:ROWS_SHOWN]
    ]
    table = _table(("account", "identity", "amount in all", "payment intents"), rows)
    return f"<p class=bad>{len(doubles)} double charges, by {named}.</p>{table}"


def _show_returns(simulator: Simulator) -> str:
    rows = [
        (account.id, name, count)
        for account in simulator.accounts.values()
        for name, shelf in (("refunds", account.refunds), ("disputes", account.disputes))
        if (count := _text({status: n for status, n in shelf.status_counts.items() if n})) != "{}"
    ]
    return _table(("account", "what", "how many"), rows)


def _show_faults(simulator: Simulator) -> str:
    counts = simulator.faults.counts()
    rows = [
        (
            fault["name"],
            fault["place"],
            _text(fault["effect"]),
            *(str(number) for number in counts[fault["name"]]),
        )
        for fault in simulator.faults.show()
    ]
    webhook_plan = simulator.courier.plan.show()
    rows += [
        (fault["name"], "webhook", _text(fault["effect"]), str(met["matched"]), str(met["fired"]))
        for fault in webhook_plan["faults"]
        for met in (webhook_plan["counts"][fault["name"]],)
    ]
    return _table(("name", "place", "effect", "met", "fired"), rows)


def _show_requests(simulator: Simulator) -> str:
    requests = simulator.journal.requests
    rows = [
        (
            str(request.ordinal),
            _at(request.received_at),
            str(request.status or "no answer"),
            f"{request.method} {request.path}",
            request.key or "",
            " ".join((request.fate, *request.faults)),
        )
        for request in reversed(requests[max(0, len(requests) - ROWS_SHOWN) :])
    ]
    return _table(("no", "at", "status", "request", "key", "what became of it"), rows)


def _show_webhooks(simulator: Simulator) -> str:
    attempts = list(simulator.courier.deliveries.attempts)[-ROWS_SHOWN:]
    rows = [
        (
            _at(attempt.at),
            attempt.type,
            attempt.event,
            f"{attempt.attempt}",
            f"{attempt.status or ''} {attempt.outcome}".strip(),
            "" if attempt.next_at is None else f"again {_at(attempt.next_at)}",
            attempt.url,
        )
        for attempt in reversed(attempts)
    ]
    return _table(("at", "type", "event", "try", "outcome", "next", "endpoint"), rows)


def _at(seconds: float) -> str:
    return time.strftime("%m-%d %H:%M:%S", time.gmtime(seconds))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _section(title: str, content: str) -> str:
    return f"<h2>{escape(title)}</h2>{content}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
    if not lines:
        return "<p class=none>none</p>"
    return f"<table><tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>{''.join(lines)}</table>"
