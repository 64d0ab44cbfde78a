"""What `chargeonce inbox` shows and does. Reads the ledger; Stripe is asked by the workers alone."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from activities.ledger.database import Pool
from activities.ledger.inbox import EventState, InboxLedger
from activities.ledger.money_back import MoneyBackLedger
from worker.console_output import Output, table
from worker.environment import load_ledger_settings
from worker.ledger_access import open_ledger
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput
from workflows.domain.money import format_money

if TYPE_CHECKING:
    from rich.console import RenderableType


async def list_events(
    output: Output, *, states: Sequence[str], charge_id: str | None, payment_intent: str | None, limit: int
) -> None:
    """Print up to `limit` events, newest first. Raises InvalidInput for a state that there is not."""
    wanted = [_state(name) for name in states] or list(EventState)
    async with _pool() as pool:
        inbox = InboxLedger(pool)
        counts = await inbox.count()
        found = await inbox.newest(
            states=wanted, charge_id=charge_id, payment_intent=payment_intent, limit=limit
        )
    output.result({"counts": counts, "events": found}, lambda: _render_list(counts, found))


async def show_event(output: Output, event_id: str) -> None:
    """Print one event. Raises InvalidInput where there is none."""
    async with _pool() as pool:
        event = await InboxLedger(pool).read(event_id)
        if event is None:
            raise InvalidInput(f"no event {echo(event_id)} was ever taken in: see `chargeonce inbox list`")
        charge_id = event["charge_id"]
        money_back = [] if charge_id is None else await MoneyBackLedger(pool).of_charge(charge_id)
    output.result({"event": event, "money_back": money_back}, lambda: _render_event(event, money_back))


async def replay_events(output: Output, event_ids: Sequence[str], *, state: str | None, limit: int) -> None:
    """Let events be worked through again, and print their ids.

    Raises:
        InvalidInput: Neither events nor a state were named, or both; or an event was never taken in.
    """
    if bool(event_ids) is (state is not None):
        raise InvalidInput("name events by their ids, or a --state: one of the two")
    async with _pool() as pool:
        inbox = InboxLedger(pool)
        wanted = list(event_ids) if state is None else await inbox.find_in_state(_state(state), limit=limit)
        replayed = await inbox.replay(wanted)
    if missing := [] if state else sorted(set(event_ids) - set(replayed)):
        raise InvalidInput(f"never taken in: {', '.join(echo(one) for one in missing)}")
    text = f"{len(replayed)} event{'' if len(replayed) == 1 else 's'} will be worked through again"
    output.result({"replayed": replayed}, lambda: [text])


@asynccontextmanager
async def _pool() -> AsyncIterator[Pool]:
    async with open_ledger(load_ledger_settings()) as pool:
        yield pool


def _state(name: str) -> EventState:
    try:
        return EventState(name)
    except ValueError:
        raise InvalidInput(f"no event is {echo(name)}, but {', '.join(EventState)}") from None


def _render_list(counts: Mapping[str, int], found: Sequence[Mapping[str, Any]]) -> Iterable["RenderableType"]:
    yield ", ".join(f"{number} {state}" for state, number in counts.items()) or "no event was taken in yet"
    if found:
        rows = [
            (
                f"{one['received_at']:%Y-%m-%d %H:%M:%S}",
                *(one[name] for name in ("event_id", "type", "payment_intent", "state", "tries", "reason")),
            )
            for one in found
        ]
        yield table(("received", "event", "type", "about", "state", "tries", "what came of it"), rows)


def _render_event(
    event: Mapping[str, Any], money_back: Sequence[Mapping[str, Any]]
) -> Iterable["RenderableType"]:
    yield table(("", ""), [(name, value) for name, value in event.items() if value is not None])
    if money_back:
        rows = [
            (
                one["kind"],
                one["id"],
                format_money(one["amount_minor"], one["currency"]),
                one["status"],
                one["failure_reason"] or one["reason"],
                one["due_by"],
            )
            for one in money_back
        ]
        yield table(("", "id", "amount", "status", "reason", "answer by"), rows)
