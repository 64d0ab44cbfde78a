"""`chargeonce notifications`: what was to be told, what became of it, and whether anybody can be reached."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.console_output import Output, table
from worker.failures import EXIT_FAILED, CommandFailed, reported
from workflows.domain.counted import counted

# ruff: noqa: PLC0415 - heavy modules are imported by the command that needs them

if TYPE_CHECKING:
    from rich.console import RenderableType

    from activities.notifiers.destination import Destination

notifications_app = typer.Typer(
    help="Who is told about runs, and what became of it.", no_args_is_help=True, rich_markup_mode=None
)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]


def _examples(*commands: str) -> str:
    return "\n".join(["\b", "Examples:", *(f"  chargeonce notifications {command}" for command in commands)])


@notifications_app.command(
    "list", epilog=_examples("list", "list --run billing-run/acct_1/2031-03 --json", "list --limit 5")
)
def list_(
    *,
    run: Annotated[str | None, typer.Option(help="Only what was to be told about this run.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="At most so many, newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List what was to be told, to whom, and how often it was tried."""
    output = Output(as_json=as_json)
    with reported(output):
        asyncio.run(list_notifications(output, run_id=run, limit=limit))


@notifications_app.command("test", epilog=_examples("test", "test --json"))
def send_test(*, as_json: AsJson = False) -> None:
    """Send a test message to every configured destination now, and print what came back."""
    output = Output(as_json=as_json)
    with reported(output):
        asyncio.run(try_destinations(output))


@notifications_app.command(
    "retry", epilog=_examples("retry", "retry --run billing-run/acct_1/2031-03 --json")
)
def retry_(
    *,
    run: Annotated[
        str | None, typer.Option(help="Only what was to be told about this run, also what was given up.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Try now what waits to be told: a receiver is back, or whoever was to deliver it is gone.

    Workers deliver it. A receiver that has it already sees it once more under the same id.
    """
    output = Output(as_json=as_json)
    with reported(output):
        asyncio.run(retry_notifications(output, run_id=run))


async def list_notifications(output: Output, *, run_id: str | None, limit: int) -> None:
    """Print up to `limit` notifications, newest first."""
    from activities.ledger.database import open_pool
    from activities.ledger.notifications import NotificationLedger
    from worker.environment import load_settings

    settings = load_settings()
    async with open_pool(settings.database_url.get_secret_value(), connections=1) as pool:
        found = await NotificationLedger(pool).newest(run_id=run_id, limit=limit)
    output.result({"notifications": found}, lambda: _render_list(found))


async def retry_notifications(output: Output, *, run_id: str | None) -> None:
    """Let workers try again now what waits, and of one run also what was given up.

    Raises:
        RefusedToStart: There is no such run, or Temporal or the ledger is not there.
    """
    from activities.ledger.database import open_pool
    from activities.ledger.notifications import NotificationLedger
    from activities.ledger.runs import RunLedger
    from worker.environment import load_settings
    from worker.notify_loop import deliver_again
    from worker.temporal_client import connect_temporal

    settings = load_settings()
    async with open_pool(settings.database_url.get_secret_value(), connections=1) as pool:
        if run_id is not None:
            await RunLedger(pool).read(run_id)
        client = await connect_temporal()
        retried = await NotificationLedger(pool).retry(run_id)
        for one in retried:
            await deliver_again(client, settings, one)
    runs = [{"run": one.run_id, "notifications": one.notifications} for one in retried]
    output.result({"retried": runs}, lambda: _render_retried(runs))


async def try_destinations(output: Output) -> None:
    """Try every destination of this environment once, at the same time.

    Raises:
        RefusedToStart: None is configured, or one can't be right.
        CommandFailed: One of them did not take the message; all are in the details.
    """
    from worker.notify_settings import NOTHING_CONFIGURED, NotifySettings
    from workflows.domain.errors import RefusedToStart

    destinations = NotifySettings().destinations()
    if not destinations:
        raise RefusedToStart(NOTHING_CONFIGURED)
    answers = await asyncio.gather(*(_try(one) for one in destinations))
    if failed := [answer for answer in answers if not answer["delivered"]]:
        told = "; ".join(f"{answer['destination']}: {answer['answer']}" for answer in failed)
        raise CommandFailed(
            f"not delivered: {told}", exit_code=EXIT_FAILED, details={"destinations": answers}
        )
    output.result({"destinations": answers}, lambda: _render_answers(answers))


async def _try(destination: "Destination") -> dict[str, Any]:
    from activities.notifiers.destination import NotDelivered

    payload = {"id": "test", "kind": "test"}
    try:
        answer = await destination.deliver(payload)
    except NotDelivered as failure:
        return {"destination": destination.name, "delivered": False, "answer": str(failure)}
    return {"destination": destination.name, "delivered": True, "answer": answer}


def _render_list(found: Sequence[Mapping[str, Any]]) -> Iterable["RenderableType"]:
    from worker.notify_settings import NOTHING_CONFIGURED, NotifySettings

    if not found:
        yield "nothing was to be told to anybody yet"
        if not NotifySettings().destinations():
            yield f"here, {NOTHING_CONFIGURED}, in all workers"
        return
    rows = [
        (
            f"{one['created_at']:%Y-%m-%d %H:%M:%S}",
            one["run_id"],
            one["kind"],
            one["destination"],
            one["state"],
            one["tries"],
            one["detail"],
        )
        for one in found
    ]
    yield table(("when", "run", "what", "to", "state", "tries", "newest try"), rows)


def _render_retried(runs: Sequence[Mapping[str, Any]]) -> Iterable["RenderableType"]:
    if not runs:
        yield "nothing waits to be told"
    for one in runs:
        yield f"{one['run']}: {counted(one['notifications'], 'notification')} under way"
        yield f"what becomes of them: chargeonce notifications list --run {one['run']}"


def _render_answers(answers: Sequence[Mapping[str, Any]]) -> Iterable["RenderableType"]:
    yield table(("destination", "answer"), [(one["destination"], one["answer"]) for one in answers])
