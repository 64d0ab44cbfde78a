"""`chargeonce audit`: every call through the proxy, with what was asked, decided and answered."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from activities.ledger.clock import read_clock
from activities.ledger.database import open_pool
from activities.ledger.vault import VaultLedger
from worker.console_output import Output, table
from worker.durations import parse_duration_seconds
from worker.environment import load_settings
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput
from workflows.domain.money import format_money

if TYPE_CHECKING:
    from rich.console import RenderableType


async def show_audit(
    output: Output, *, run_id: str | None, key_id: str | None, since: str | None, limit: int
) -> None:
    """Print up to `limit` calls, newest first. Raises InvalidInput where `since` is neither age nor time."""
    database_url = load_settings().database_url.get_secret_value()
    moment = None if since is None else read_since(since, now=(await read_clock(database_url)).now)
    async with open_pool(database_url, connections=1) as pool:
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
            _money(call["asked_minor"], call["asked_currency"]),
            call["decision"],
            _answer(call),
            _money(call["reported_minor"], call["reported_currency"]),
            call["request_id"],
            None if call["latency_ms"] is None else round(call["latency_ms"], 1),
        )
        for call in calls
    ]
    names = ("ledger's clock", "key", "call", "asked", "decision", "answer", "Stripe says", "request", "ms")
    yield table(names, rows)


def _answer(call: Mapping[str, Any]) -> str:
    if call["outcome"] is None:
        return "never recorded" if call["decision"] == "forward" else ""
    replayed = ", replayed" if call["replayed"] else ""
    return f"{call['http_status'] or 'none'} {call['outcome']}{replayed}"


def _money(amount_minor: int | None, currency: str | None) -> str:
    if amount_minor is None:
        return ""
    return format_money(amount_minor, currency) if currency else str(amount_minor)
