"""`chargeonce run approve`, `pause`, `resume`, `cancel`, `raise-cap`, `recover`, `events`: what they say."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from activities.ledger.control import ControlLedger
from activities.ledger.database import Pool, open_pool
from activities.ledger.runs import RunLedger
from worker.console_output import Output, table
from worker.environment import load_settings
from worker.run_advice import describe_resume
from worker.run_control import approve_run, cancel_run, pause_run, raise_cap, recover_run, resume_run
from worker.run_view import ENDED_PHASES
from worker.settings import Settings
from worker.temporal_client import connect_temporal
from worker.whoami import who as user_at_host
from workflows.contracts import HoldKind, Standing
from workflows.domain.counted import counted
from workflows.domain.errors import InvalidInput, RefusedToStart
from workflows.domain.money import format_money, parse_currency, parse_major

if TYPE_CHECKING:
    from rich.console import RenderableType

Ask = Callable[..., Awaitable[Standing]]


async def approve(output: Output, run_id: str, plan_hash: str, *, who: str | None, reason: str) -> None:
    """Approve the plan of a hash. Here and below, RefusedToStart: no such run, or refused, or no answer."""
    await _decide(output, run_id, "approved", approve_run, plan_hash, who=who, reason=reason)


async def pause(output: Output, run_id: str, *, who: str | None, reason: str) -> None:
    """Let a run start nothing new."""
    await _decide(output, run_id, "paused", pause_run, who=who, reason=reason)


async def resume(output: Output, run_id: str, *, who: str | None, reason: str) -> None:
    """Let a held run go on."""
    await _decide(output, run_id, "resumed", resume_run, who=who, reason=reason)


async def cancel(output: Output, run_id: str, *, who: str | None, reason: str) -> None:
    """End a run safely."""
    await _decide(output, run_id, "canceling", cancel_run, who=who, reason=reason)


async def raise_caps(
    output: Output, run_id: str, caps: Sequence[str], *, who: str | None, reason: str
) -> None:
    """Raise caps that were typed as usd=12345.00. Raises InvalidInput too, for what is no amount."""
    await _decide(output, run_id, "cap raised", raise_cap, parse_caps(caps), who=who, reason=reason)


async def recover(output: Output, run_id: str, *, who: str | None, reason: str) -> None:
    """Start a new workflow for a run whose own is gone. Raises RefusedToStart where it runs or has ended."""
    refuse_wordless(reason, who=who)
    async with _at_work() as (settings, pool):
        handle = await recover_run(
            await connect_temporal(),
            RunLedger(pool),
            settings,
            run_id,
            who=who or user_at_host(),
            reason=reason,
        )
    document = {"decision": "recovering", "run": run_id, "workflow_run_id": handle.first_execution_run_id}
    text = f"{run_id} has a new workflow, which goes on from the ledger: chargeonce run show {run_id}"
    output.result(document, lambda: [text])


async def list_events(output: Output, run_id: str) -> None:
    """Print what was decided about a run, by whom, when and why. Raises RefusedToStart without such a run."""
    async with _at_work() as (_settings, pool):
        await RunLedger(pool).read(run_id)
        events = [
            {
                "at": event.at,
                "action": event.action,
                "who": event.who,
                "reason": event.reason,
                "detail": dict(event.detail),
            }
            for event in await ControlLedger(pool).events(run_id)
        ]
    output.result({"run": run_id, "events": events}, lambda: _render_events(run_id, events))


def parse_caps(caps: Iterable[str]) -> dict[str, int]:
    """Return minor units by currency, from words such as usd=12345.00.

    Raises:
        InvalidInput: A word is no currency and amount, or a currency is there twice.
    """
    caps_minor: dict[str, int] = {}
    for word in caps:
        name, equals, amount = word.partition("=")
        if not equals:
            raise InvalidInput(f"a cap is a currency and an amount, such as usd=12345.00, not {word[:40]!a}")
        currency = parse_currency(name)
        if currency in caps_minor:
            raise InvalidInput(f"two caps for {currency}: say one")
        caps_minor[currency] = parse_major(amount, currency)
    return caps_minor


async def _decide(
    output: Output, run_id: str, decision: str, ask: Ask, *what: object, who: str | None, reason: str
) -> None:
    refuse_wordless(reason, who=who)
    async with _at_work() as (_settings, pool):
        # A mistyped id, or a run that has ended, is told as such and not as a lost workflow.
        run = await RunLedger(pool).read(run_id)
        if run.phase in ENDED_PHASES:
            raise RefusedToStart(f"nothing has changed: {run_id} has ended ({run.phase})")
        client = await connect_temporal()
        standing = await ask(client, run_id, *what, who=who or user_at_host(), reason=reason)
    canary = (run.request or {}).get("canary") or {}
    document = {
        "decision": decision,
        **_document(standing),
        "canary_waits": bool(canary.get("lines")) and not standing.canary_released,
    }
    output.result(document, lambda: render_decision(document))


@asynccontextmanager
async def _at_work() -> AsyncIterator[tuple[Settings, Pool]]:
    settings = load_settings()
    async with open_pool(settings.database_url.get_secret_value(), connections=2) as pool:
        yield settings, pool


def _document(standing: Standing) -> dict[str, Any]:
    return {
        "run": standing.run_id,
        "phase": standing.phase,
        "hold": standing.hold,
        "hold_reason": standing.hold_reason,
        "canceling": standing.canceling,
        "already": standing.already,
        "lines": standing.selected,
        "settled": standing.settled,
        "in_flight": standing.in_flight,
        "not_started": standing.not_started,
    }


def render_decision(document: Mapping[str, Any]) -> Iterable["RenderableType"]:
    """Yield what a decision came to: what stood already, where lines stand, and what keeps the run now."""
    run = document["run"]
    if document["already"]:
        yield f"{run}: {document['already']}. Your reason is on record beside it."
    else:
        yield f"{run}: {document['decision']}."
    in_flight = document["in_flight"]
    finish = f", {in_flight} in flight, which will still be settled" if in_flight else ""
    yield (
        f"{document['settled']} of {counted(document['lines'], 'line')} settled{finish}, "
        f"{document['not_started']} not begun."
    )
    if document["canceling"]:
        yield "What is open is being canceled, at Stripe as well; then the run closes."
    elif document["hold"] == HoldKind.PAUSED:
        yield f"Nothing new starts until: {describe_resume(run)}"
    elif document["hold"] is not None:
        yield f"It is still held ({document['hold']}: {document['hold_reason']})."
    elif document["decision"] == "resumed" and document["canary_waits"]:
        yield (
            "Its canary is not judged yet: once the canary's lines are through, the run is held behind them, "
            f"unless its rule lets it go on. Look at them then, and resume once more: {describe_resume(run)}"
        )


def refuse_wordless(reason: str, *, who: str | None) -> None:
    """Raise InvalidInput where a decision says nothing by way of a reason, or of a name that was given."""
    if not reason.strip():
        raise InvalidInput("--reason is empty: say why in a few words; it stays in the run's audit trail")
    if who is not None and not who.strip():
        raise InvalidInput("--who is empty: name who decides, or leave it out for you@this-host")


def _render_events(run_id: str, events: Sequence[Mapping[str, Any]]) -> Iterable["RenderableType"]:
    if not events:
        yield f"nothing has been decided about {run_id} yet"
        return
    rows = [
        (f"{one['at']:%Y-%m-%d %H:%M:%S}", one["action"], describe_event(one), one["who"], one["reason"])
        for one in events
    ]
    yield table(("at (ledger's clock)", "what", "of what", "who", "why"), rows)


def describe_event(event: Mapping[str, Any]) -> str:
    """Return what was decided about: the plan's hash, the caps before and after, the hold that ended."""
    detail: Mapping[str, Any] = event["detail"]
    match event["action"]:
        case "planned" | "approved":
            return f"plan {detail['plan_hash']}" if "plan_hash" in detail else ""
        case "cap_raised":
            return ", ".join(
                f"{format_money(before, currency)} to {format_money(now, currency)}"
                for currency, (before, now) in sorted(detail["caps_minor"].items())
            )
        case "paused" if "instead_of" in detail:
            return f"instead of its hold ({detail['instead_of']})"
        case _:
            return f"was held ({detail['hold']})" if detail.get("hold") else ""
