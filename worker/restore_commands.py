"""What `chargeonce restore` takes."""

import asyncio
from typing import Annotated

import typer

from worker.console_output import Output
from worker.failures import reported
from worker.help_examples import examples
from workflows.domain.errors import InvalidInput

# ruff: noqa: PLC0415 - commands import what they need

LOOK_BACK_DAYS = 35  # beyond the period of a month, and what Stripe shows of events


def add_restore_command(app: typer.Typer) -> None:
    """Add the command to `chargeonce`."""
    app.command(
        "restore",
        epilog=examples(
            "restore",
            'restore --declare --reason "pg_restore of last night\'s dump"',
            'restore --clear --reason "the backup of 02:00 is in place" --json',
        ),
    )(restore)


def restore(
    *,
    declare: Annotated[
        bool, typer.Option("--declare", help="The ledger was restored, and its cluster does not show it.")
    ] = False,
    clear: Annotated[
        bool, typer.Option("--clear", help="Rotate keys, ask Stripe, and let sending go on.")
    ] = False,
    reason: Annotated[str | None, typer.Option(help="Why; it stays on record.")] = None,
    who: Annotated[str | None, typer.Option(help="Who decides; user@host where it is not said.")] = None,
    look_back_days: Annotated[
        int, typer.Option(min=1, max=400, help="How old the oldest PaymentIntent of an open run can be.")
    ] = LOOK_BACK_DAYS,
    key_rolled: Annotated[
        bool, typer.Option("--key-rolled", help="Without a proxy: the Stripe key was rolled by hand.")
    ] = False,
    accept_strangers: Annotated[
        bool,
        typer.Option("--accept-strangers", help="Stripe has payments of charges that the ledger has lost."),
    ] = False,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(help="An account that is gone: nobody is charged there. Refused with open charges."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Say out loud that the runs are paid with real money.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")
    ] = False,
) -> None:
    """Show whether the ledger was restored from a backup, and let sending go on after it.

    A restored ledger has forgotten what it sent last. Until it is cleared nothing is sent, for any run:
    another cluster or timeline of PostgreSQL is noticed by itself, anything else is said with --declare.
    """
    output = Output(as_json=as_json)
    with reported(output):
        from worker.restore_actions import ClearCommand, clear_restore, declare_restore, show_restore

        if declare and clear:
            raise InvalidInput("--declare and --clear are two steps: say one of them")
        if (declare or clear) and reason is None:
            raise InvalidInput("say why with --reason: it stays on record")
        if declare:
            asyncio.run(declare_restore(output, who=who, reason=reason or ""))
        elif clear:
            command = ClearCommand(
                who=who, reason=reason or "", look_back_days=look_back_days, key_rolled=key_rolled,
                accept_strangers=accept_strangers, live=live, leave_out=leave_out or [],
            )  # fmt: skip
            asyncio.run(clear_restore(output, command))
        else:
            asyncio.run(show_restore(output))
