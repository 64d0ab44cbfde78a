"""What `chargeonce review` and `resolve` take."""

import asyncio
from typing import Annotated

import typer

from worker.console_output import Output
from worker.failures import reported
from worker.help_examples import examples
from workflows.domain.review import Resolution

# ruff: noqa: PLC0415 - commands import what they need

ChargeName = Annotated[
    str, typer.Argument(metavar="CHARGE", help="A charge id or its first 6 digits, pi_..., or customer/line.")
]
OfRun = Annotated[str | None, typer.Option("--run", help="Only among the charges of this run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]


def add_review_commands(app: typer.Typer) -> None:
    """Add the commands to `chargeonce`."""
    app.command("review", epilog=examples("review", "review --account acct_1 --json", "review cus_42/base"))(
        review
    )
    app.command(
        "resolve",
        epilog=examples(
            'resolve 3f2a9c --as paid --reason "paid by the PaymentIntent that was adopted late"',
            'resolve cus_42/base --as canceled --reason "wrong amount, refunded" --json',
        ),
    )(resolve)


def review(
    charge: Annotated[
        str | None, typer.Argument(metavar="CHARGE", help="One charge: its id, pi_..., or customer/line.")
    ] = None,
    *,
    run: OfRun = None,
    account: Annotated[str | None, typer.Option(help="Only charges of this account.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many in the list.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the charges that people must decide about; with CHARGE, what Stripe shows, and the choices."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.review_actions import list_reviews, show_review

        if charge is None:
            asyncio.run(list_reviews(output, account=account, run_id=run, limit=limit))
        else:
            asyncio.run(show_review(output, charge, run_id=run))


def resolve(
    charge: ChargeName,
    *,
    resolution: Annotated[
        Resolution,
        typer.Option(
            "--as",
            help="paid: by the one PaymentIntent that Stripe shows; unpaid: declined for good; "
            "canceled: what is open of it is canceled at Stripe first.",
        ),
    ],
    reason: Annotated[str, typer.Option(help="Why; it stays on record.")],
    who: Annotated[str | None, typer.Option(help="Who decides; user@host where it is not said.")] = None,
    run: OfRun = None,
    as_json: AsJson = False,
) -> None:
    """Record a decision about a charge in review. Stripe is asked at that moment, and has to bear it out."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.review_actions import resolve as resolve_charge

        asyncio.run(resolve_charge(output, charge, resolution, run_id=run, who=who, reason=reason))
