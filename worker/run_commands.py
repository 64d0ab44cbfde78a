"""The commands by which people decide about a run. Each only parses; what it does is in run_decisions."""

import asyncio
from typing import Annotated

import typer

from worker.cli import AsJson, RunId, run_app
from worker.console_output import Output
from worker.failures import reported
from worker.help_examples import examples

# ruff: noqa: PLC0415 - as in worker.cli

Reason = Annotated[str, typer.Option(help="Why: it stays in the run's audit trail.")]
Who = Annotated[str | None, typer.Option(help="Who decides; left out, you@this-host.")]
RUN = "billing-run/acct_1/2031-03"


@run_app.command("approve", epilog=examples(f'run approve {RUN} --hash 3f2a9c... --reason "sums are right"'))
def approve_(
    run: RunId,
    *,
    plan_hash: Annotated[str, typer.Option("--hash", help="The hash of the plan that you looked at, whole.")],
    reason: Reason,
    who: Who = None,
    as_json: AsJson = False,
) -> None:
    """Let a planned run charge. The hash names the plan: that of any other plan is refused (exit code 4)."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.run_decisions import approve

        asyncio.run(approve(output, run, plan_hash, who=who, reason=reason))


@run_app.command("pause", epilog=examples(f'run pause {RUN} --reason "support asks for an hour"'))
def pause_(run: RunId, *, reason: Reason, who: Who = None, as_json: AsJson = False) -> None:
    """Finish what is in flight and start nothing new; says how many lines remain."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.run_decisions import pause

        asyncio.run(pause(output, run, who=who, reason=reason))


@run_app.command("resume", epilog=examples(f'run resume {RUN} --reason "the key is mended"'))
def resume_(run: RunId, *, reason: Reason, who: Who = None, as_json: AsJson = False) -> None:
    """Go on with a run that is held: paused, behind its canary, or stopped by a breaker."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.run_decisions import resume

        asyncio.run(resume(output, run, who=who, reason=reason))


@run_app.command("cancel", epilog=examples(f'run cancel {RUN} --reason "wrong price list"'))
def cancel_(run: RunId, *, reason: Reason, who: Who = None, as_json: AsJson = False) -> None:
    """End a run safely: what is open is canceled, also at Stripe; what was paid stays paid. Not undone."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.run_decisions import cancel

        asyncio.run(cancel(output, run, who=who, reason=reason))


@run_app.command(
    "raise-cap", epilog=examples(f'run raise-cap {RUN} --cap usd=12345.00 --reason "late orders came in"')
)
def raise_cap_(
    run: RunId,
    *,
    cap: Annotated[
        list[str], typer.Option(help="A currency and its new cap, such as usd=12345.00; may be repeated.")
    ],
    reason: Reason,
    who: Who = None,
    as_json: AsJson = False,
) -> None:
    """Let a run move more than it was approved for. A cap never goes down; a run held at it goes on."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.run_decisions import raise_caps

        asyncio.run(raise_caps(output, run, cap, who=who, reason=reason))


@run_app.command("recover", epilog=examples(f'run recover {RUN} --reason "its workflow was terminated"'))
def recover_(run: RunId, *, reason: Reason, who: Who = None, as_json: AsJson = False) -> None:
    """Give a run whose workflow was lost a new one, which goes on from the ledger. Refused while one runs."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.run_decisions import recover

        asyncio.run(recover(output, run, who=who, reason=reason))


@run_app.command("events", epilog=examples(f"run events {RUN}", f"run events {RUN} --json"))
def events_(run: RunId, *, as_json: AsJson = False) -> None:
    """Tell what was decided about a run: by whom, when and why."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.run_decisions import list_events

        asyncio.run(list_events(output, run))
