"""What `chargeonce refund` and `refunds` take."""

import asyncio
from typing import Annotated

import typer

from worker.console_output import Output
from worker.failures import reported
from worker.help_examples import examples
from workflows.domain.errors import InvalidInput

# ruff: noqa: PLC0415 - commands import what they need

OfRun = Annotated[str | None, typer.Option("--run", help="Only among the charges of this run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]


def add_refund_commands(app: typer.Typer) -> None:
    """Add the commands to `chargeonce`."""
    app.command(
        "refund",
        epilog=examples(
            'refund cus_42/base --reason "paid by transfer as well"',
            'refund 3f2a9c --amount 12.50 --reason "half a month" --yes --json',
            "refund 3f2a9c --payment-intent pi_3Q --amount 42.00 --reason duplicate --yes",
            "refund --request 5d1f0c2a9b8e7d6c5b4a3f2e",
        ),
    )(refund)
    app.command("refunds", epilog=examples("refunds", "refunds --charge cus_42/base --json"))(refunds)


def refund(
    charge: Annotated[
        str | None, typer.Argument(metavar="CHARGE", help="A charge id, pi_..., or customer/line.")
    ] = None,
    *,
    payment_intent: Annotated[
        str | None,
        typer.Option(help="Another PaymentIntent of the charge: a duplicate. Its amount must be said too."),
    ] = None,
    amount: Annotated[
        str | None, typer.Option(help="In major units, such as 12.50; without it, all that is left.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why; it stays on record.")] = None,
    who: Annotated[str | None, typer.Option(help="Who approves; user@host where it is not said.")] = None,
    request: Annotated[
        str | None, typer.Option(help="Carry a request on that was kept, and interrupted: see `refunds`.")
    ] = None,
    run: OfRun = None,
    yes: Annotated[bool, typer.Option("--yes", help="Approve it without being asked.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Stay until Stripe has answered.")] = True,
    as_json: AsJson = False,
) -> None:
    """Give money of a charge back, once. The charge stays paid; the refund stands beside it.

    Two partial refunds are two requests, each under a key of its own that is never replaced.
    """
    output = Output(as_json=as_json)
    with reported(output):
        from worker.refund_actions import RefundCommand
        from worker.refund_actions import refund as refund_charge

        if (charge is None) == (request is None):
            raise InvalidInput("say what to refund: a CHARGE, or --request of one that was interrupted")
        if charge is not None and reason is None:
            raise InvalidInput("say why with --reason: it stays on record")
        command = RefundCommand(
            charge=charge, request_id=request, run_id=run, payment_intent=payment_intent, amount=amount,
            reason=reason, who=who, yes=yes, wait=wait,
        )  # fmt: skip
        asyncio.run(refund_charge(output, command))


def refunds(
    *,
    charge: Annotated[str | None, typer.Option(help="Only of this charge.")] = None,
    run: OfRun = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many, newest first.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List the refunds that were asked for here, and what became of each."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.refund_actions import list_refunds

        asyncio.run(list_refunds(output, charge=charge, run_id=run, limit=limit))
