"""/_sim: the simulator's own controls, as JSON, for callers on this machine."""

import json
from collections.abc import Callable
from typing import Any

from deploy.stripe_sim.due import settle_due
from deploy.stripe_sim.faults import FaultPlanError, parse_plan
from deploy.stripe_sim.seeding import SeedError, seed_account
from deploy.stripe_sim.settings import SettingsError
from deploy.stripe_sim.simulator import Simulator
from deploy.stripe_sim.webhook_admin import CONTROLS as WEBHOOK_CONTROLS

Json = dict[str, Any]
PAGE_SIZE_DEFAULT = 1_000


class AdminError(Exception):
    """A control request that makes no sense; carries the status of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def answer_admin(simulator: Simulator, method: str, path: str, query: dict[str, str], body: bytes) -> Json:
    """Answer one control request, or raise AdminError."""
    control = CONTROLS.get((method, path))
    if control is None:
        raise AdminError(404, f"no {method} {path} here; there are {', '.join(map(' '.join, CONTROLS))}")
    settle_due(simulator)
    try:
        document = json.loads(body) if body else {}
        return control(simulator, query, document)
    except (FaultPlanError, SettingsError, SeedError, ValueError, TypeError) as error:
        raise AdminError(400, str(error)) from error


def _show_health(simulator: Simulator, _query: Json, _document: Any) -> Json:
    requests = len(simulator.journal.requests)
    return {"ok": True, "now": simulator.clock.now(), "requests": requests, "seed": simulator.seed}


def _show_clock(simulator: Simulator, _query: Json, _document: Any) -> Json:
    return dict(simulator.clock.describe())


def _move_clock(simulator: Simulator, _query: Json, document: Any) -> Json:
    clock = simulator.clock
    match document:
        case {"advance_seconds": int() | float() as seconds, **rest} if not rest:
            clock.advance(seconds)
        case {"set_offset_seconds": int() | float() as seconds, **rest} if not rest:
            clock.set_offset(seconds)
        case {"freeze_at": int() | float() as at, **rest} if not rest:
            clock.freeze(at)
        case {"unfreeze": True, **rest} if not rest:
            clock.unfreeze()
        case _:
            raise ValueError(
                "one of advance_seconds, set_offset_seconds, freeze_at (numbers), unfreeze (true)"
            )
    simulator.save_clock()
    settle_due(simulator)
    return dict(clock.describe())


def _show_faults(simulator: Simulator, _query: Json, _document: Any) -> Json:
    counts = {
        name: {"matched": matched, "fired": fired}
        for name, (matched, fired) in simulator.faults.counts().items()
    }
    return {"faults": simulator.faults.show(), "counts": counts, "seed": simulator.seed}


def _set_faults(simulator: Simulator, query: Json, document: Any) -> Json:
    plan = parse_plan(document)
    if isinstance(document, dict) and "webhooks" in document:
        simulator.courier.replace_faults(document["webhooks"])
    simulator.replace_faults(plan)
    return _show_faults(simulator, query, document)


def _clear_faults(simulator: Simulator, query: Json, document: Any) -> Json:
    simulator.replace_faults([])
    return _show_faults(simulator, query, document)


def _show_settings(simulator: Simulator, _query: Json, _document: Any) -> Json:
    return simulator.settings.show()


def _change_settings(simulator: Simulator, _query: Json, document: Any) -> Json:
    if not isinstance(document, dict):
        raise SettingsError("settings are an object")
    simulator.change_settings(document)
    return simulator.settings.show()


def _seed(simulator: Simulator, _query: Json, document: Any) -> Json:
    return seed_account(simulator, document)


def _show_journal(simulator: Simulator, query: Json, _document: Any) -> Json:
    since, limit = int(query.get("since", 0)), int(query.get("limit", PAGE_SIZE_DEFAULT))
    requests = simulator.journal.requests[max(0, since) : max(0, since) + max(0, limit)]
    return {"requests": [request.show() for request in requests], "total": len(simulator.journal.requests)}


def _show_book(simulator: Simulator, query: Json, _document: Any) -> Json:
    since, limit = int(query.get("since", 0)), int(query.get("limit", 1 << 62))
    movements = simulator.book.movements[max(0, since) : max(0, since) + max(0, limit)]
    return {"movements": [entry.show() for entry in movements], "total": len(simulator.book.movements)}


def summarize(simulator: Simulator, identity: str | None) -> Json:
    """Return requests, payments and money in numbers, and every double charge by name."""
    shelves = [account.intents for account in simulator.accounts.values()]
    statuses: dict[str, int] = {}
    for shelf in shelves:
        for status, count in shelf.status_counts.items():
            if count:
                statuses[status] = statuses.get(status, 0) + count
    return {
        "requests": len(simulator.journal.requests),
        "posts": simulator.journal.posts,
        "repeated_posts": simulator.journal.repeated_posts,
        "payment_intents": sum(shelf.next_seq() for shelf in shelves),
        "statuses": statuses,
        "succeeded": statuses.get("succeeded", 0),
        **simulator.book.summarize(identity),
    }


def _show_summary(simulator: Simulator, query: Json, _document: Any) -> Json:
    return summarize(simulator, query.get("identity"))


CONTROLS: dict[tuple[str, str], Callable[[Simulator, Json, Any], Json]] = {
    ("GET", "/_sim/health"): _show_health,
    ("GET", "/_sim/clock"): _show_clock,
    ("POST", "/_sim/clock"): _move_clock,
    ("GET", "/_sim/faults"): _show_faults,
    ("PUT", "/_sim/faults"): _set_faults,
    ("DELETE", "/_sim/faults"): _clear_faults,
    ("GET", "/_sim/settings"): _show_settings,
    ("PATCH", "/_sim/settings"): _change_settings,
    ("POST", "/_sim/seed"): _seed,
    ("GET", "/_sim/journal"): _show_journal,
    ("GET", "/_sim/book"): _show_book,
    ("GET", "/_sim/book/summary"): _show_summary,
    **WEBHOOK_CONTROLS,
}
