"""`chargeonce web` and `inbox`: the webhook receiver, and what became of what it took."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from worker.console_output import Output
from worker.failures import reported
from worker.help_examples import examples

# ruff: noqa: PLC0415 - heavy modules are imported by the command that needs them


inbox_app = typer.Typer(
    help="Events from Stripe: what waits, what came of them, and letting them be tried again.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
STATES = "waiting, unmatched, done, ignored or parked"


def add_web_commands(app: typer.Typer) -> None:
    """Add the commands of the receiver and of its inbox to the production commands."""
    app.add_typer(inbox_app, name="inbox")
    app.command("web", epilog=examples("web", "web --listen 127.0.0.1:12113 --live"))(web)


def web(
    *,
    listen: Annotated[
        str | None, typer.Option(metavar="ADDRESS:PORT", help="Where to listen; port 0 takes a free one.")
    ] = None,
    ready_file: Annotated[Path | None, typer.Option(help='Write {"url": ...} here once it listens.')] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Take live events, and refuse those of the sandbox.")
    ] = False,
) -> None:
    """Receive Stripe's webhooks until SIGTERM or Ctrl-C: verify, keep, acknowledge. Workers do the rest.

    Needs CHARGEONCE_DATABASE_URL and CHARGEONCE_WEBHOOK_SECRETS (acct_1=whsec_..., separated by commas), and
    no Stripe key. Stripe delivers to /webhooks/stripe.
    """
    with reported(Output(as_json=False)):
        from worker.web_process import run_web_process

        run_web_process(listen=listen, ready_file=ready_file, live=live)


@inbox_app.command(
    "list",
    epilog=examples("inbox list", "inbox list --state parked --json", "inbox list --charge 3f2a9c..."),
)
def list_(
    *,
    state: Annotated[list[str] | None, typer.Option(help=f"Only these: {STATES}. May be repeated.")] = None,
    charge: Annotated[str | None, typer.Option(help="Only events that name this charge, by its id.")] = None,
    payment_intent: Annotated[str | None, typer.Option(help="Only events about this pi_....")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List events, newest first, and how many there are in each state."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.inbox_read import list_events

        asyncio.run(
            list_events(
                output, states=state or [], charge_id=charge, payment_intent=payment_intent, limit=limit
            )
        )


@inbox_app.command("show", epilog=examples("inbox show evt_1Abc", "inbox show evt_1Abc --json"))
def show(
    event: Annotated[str, typer.Argument(metavar="EVENT", help="Such as evt_1Abc.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show one event, and what the ledger has of refunds and disputes of its charge."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.inbox_read import show_event

        asyncio.run(show_event(output, event))


@inbox_app.command(
    "replay", epilog=examples("inbox replay evt_1Abc evt_2Def", "inbox replay --state parked --limit 500")
)
def replay(
    events: Annotated[list[str] | None, typer.Argument(metavar="[EVENT]...", help="By their ids.")] = None,
    *,
    state: Annotated[str | None, typer.Option(help=f"All that are {STATES}, oldest first.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many, with --state.")] = 1_000,
    as_json: AsJson = False,
) -> None:
    """Let events be worked through again: Stripe is asked anew, and nothing is ever applied twice."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.inbox_read import replay_events

        asyncio.run(replay_events(output, events or [], state=state, limit=limit))
