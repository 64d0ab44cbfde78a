"""`chargeonce audit`: every call through the proxy, with what was asked, decided and answered."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from activities.ledger.clock import read_clock
from activities.ledger.vault import VaultLedger
from worker.console_output import Output, table
from worker.durations import parse_duration_seconds
from worker.environment import load_ledger_settings
from worker.ledger_access import open_ledger
from worker.money_shown import show_money
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import RenderableType

_LEGEND = (
    "asked: the amount in the request; of a confirm, the one that the proxy has on record for its object.",
    "decision: forward went to Stripe; anything else is the code that the caller got, and nothing was sent.",
    "answer: HTTP status and what it proves; unknown keeps the money held until Stripe has been asked again.",
    "moved: what Stripe says has come in, or gone back, on that object.",
)


async def show_audit(
    output: Output, *, run_id: str | None, key_id: str | None, since: str | None, limit: int
) -> None:
    """Print up to `limit` calls, newest first. Raises InvalidInput where `since` is neither age nor time."""
    settings = load_ledger_settings()
    async with open_ledger(settings) as pool:
        moment = None
        if since is not None:
            clock = await read_clock(settings.database_url.get_secret_value())
            moment = read_since(since, now=clock.now)
        calls = await VaultLedger(pool).audit(run_id=run_id, key_id=key_id, since=moment, limit=limit)
    output.result({"calls": calls}, lambda: _render(calls))


def read_since(text: str, *, now: datetime) -> datetime:
    """Return the moment that "2h" (ago, by the ledger's clock) or an ISO time means; raises InvalidInput."""
    try:
        return now - timedelta(seconds=parse_duration_seconds(text))
    except InvalidInput:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{echo(text)} is neither an age such as 2h nor a time such as 2031-03-01T08:00"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _render(calls: Sequence[Mapping[str, Any]]) -> Iterable["RenderableType"]:
    if not calls:
        yield "no calls through the proxy"
        return
    rows = [
        (
            f"{call['called_at']:%Y-%m-%d %H:%M:%S}",
            call["key_id"],
            f"{call['method']} {call['path']}",
            show_money(call["asked_minor"], call["asked_currency"]),
            call["decision"],
            _answer(call),
            show_money(call["reported_minor"], call["reported_currency"]),
            call["request_id"],
            None if call["latency_ms"] is None else round(call["latency_ms"], 1),
        )
        for call in calls
    ]
    names = ("ledger's clock", "key", "call", "asked", "decision", "answer", "moved", "request", "ms")
    yield table(names, rows)
    yield from _LEGEND


def _answer(call: Mapping[str, Any]) -> str:
    if call["outcome"] is None:
        return "never recorded" if call["decision"] == "forward" else ""
    replayed = ", replayed" if call["replayed"] else ""
    return f"{call['http_status'] or 'none'} {call['outcome']}{replayed}"
