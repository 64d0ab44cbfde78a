"""`chargeonce reconcile`: hold the ledger against Stripe, show what differs, and end what may be ended."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from worker.console_output import Output
from worker.failures import EXIT_USAGE, CommandFailed, reported
from worker.help_examples import examples

# ruff: noqa: PLC0415 - heavy modules are imported by the command that needs them

RUN = "billing-run/acct_1/2031-03"


reconcile_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
CsvFile = Annotated[Path | None, typer.Option("--csv", help="Write the differences to this CSV file too.")]
HtmlFile = Annotated[Path | None, typer.Option("--html", help="Write the report to this one HTML file too.")]


def add_reconcile_commands(app: typer.Typer) -> None:
    """Add `reconcile` with `reconcile list` and `reconcile show`."""
    app.add_typer(reconcile_app, name="reconcile")


@reconcile_app.callback(
    epilog=examples(
        f"reconcile --run {RUN}",
        f"reconcile --run {RUN} --repair --html drift.html",
        "reconcile --since 3d --account acct_1 --csv drift.csv --json",
        "reconcile --since 2031-03-01 --until 2031-03-08 --no-wait",
    )
)
def reconcile_(
    context: typer.Context,
    *,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Every charge of this run.")] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Every charge first sent since: an age such as 3d, a date, or a time (UTC)."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="With --since: and before this; left out, until now.")
    ] = None,
    account: Annotated[
        str | None, typer.Option(help="With --since: whose charges; left out, the ledger's one account.")
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Apply the repairs that move no money. A refund is never one.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait for the report, or start it and say how to see it.")
    ] = True,
    reason: Annotated[str | None, typer.Option(help="Why: it stays with the reconciliation.")] = None,
    who: Annotated[str | None, typer.Option(help="Who asks for it; left out, you@this-host.")] = None,
    csv_file: CsvFile = None,
    html_file: HtmlFile = None,
    as_json: AsJson = False,
) -> None:
    """Compare every charge of a run, or of an account and a span, with Stripe; settle, and say what differs.

    Exits 0 when all agrees, 3 when a difference is open or something could not be read. Ctrl-C ends this
    command and not the reconciliation: `reconcile show` has its report, also as CSV and HTML.
    """
    output = Output(as_json=as_json)
    if context.invoked_subcommand is not None:
        with reported(output):
            _refuse_options(context)
        return
    with reported(output):
        if (run is not None) + (since is not None) != 1:
            raise CommandFailed("say what to reconcile: --run RUN, or --since T", exit_code=EXIT_USAGE)
        if run is not None and not (until is None and account is None):
            raise CommandFailed(
                "--until and --account go with --since: a run is reconciled whole", exit_code=EXIT_USAGE
            )
        if not wait and not (csv_file is None and html_file is None):
            raise CommandFailed(
                "--no-wait has no report to write: `reconcile show` writes it later", exit_code=EXIT_USAGE
            )
        from worker.reconcile_start import ReconcileCommand, reconcile

        command = ReconcileCommand(
            run_id=run, since=since, until=until, account=account, repair=repair, wait=wait, reason=reason,
            who=who, csv_file=csv_file, html_file=html_file,
        )  # fmt: skip
        asyncio.run(reconcile(output, command))


def _refuse_options(context: typer.Context) -> None:
    sources = [context.get_parameter_source(name) for name in context.params]
    typed = any(source is not None and source.name == "COMMANDLINE" for source in sources)
    if typed:
        raise CommandFailed(
            f"options of `reconcile` stand before `{context.invoked_subcommand}`: say them after it",
            exit_code=EXIT_USAGE,
        )


@reconcile_app.command("list", epilog=examples("reconcile list", "reconcile list --limit 5 --json"))
def list_(
    *,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="At most so many, newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List reconciliations, newest first, with what each found and left open."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.reconcile_read import list_reconciliations

        asyncio.run(list_reconciliations(output, limit=limit))


@reconcile_app.command(
    "show",
    epilog=examples(
        f"reconcile show reconcile/{RUN}/1",
        f"reconcile show reconcile/{RUN}/1 --csv drift.csv --html drift.html --json",
    ),
)
def show_(
    reconciliation: Annotated[
        str, typer.Argument(metavar="RECONCILIATION", help="Its id, as `reconcile list` prints it.")
    ],
    *,
    csv_file: CsvFile = None,
    html_file: HtmlFile = None,
    as_json: AsJson = False,
) -> None:
    """Show one reconciliation: what differed, since when, what to type. Exits 3 while anything is open."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.reconcile_read import show_reconciliation

        asyncio.run(show_reconciliation(output, reconciliation, csv_file=csv_file, html_file=html_file))
