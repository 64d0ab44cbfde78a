"""`chargeonce export`: the closing pack of a run, and the check of one that was written."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from worker.console_output import Output
from worker.failures import reported
from worker.help_examples import examples
from workflows.domain.errors import InvalidInput

# ruff: noqa: PLC0415 - heavy modules are imported by the command that needs them

FORMATS = ("csv", "parquet", "both")


def add_export_commands(app: typer.Typer) -> None:
    """Add `export`."""
    app.command(
        "export",
        epilog=examples(
            "export billing-run/acct_1/2031-03 --out pack-2031-03",
            "export billing-run/acct_1/2031-03 --out pack-2031-03 --format both --json",
            "export --check pack-2031-03",
        ),
    )(export)


def export(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Such as billing-run/acct_1/2031-03: see `run list`.")
    ] = None,
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the pack goes: a folder that is not there yet.")
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", metavar="|".join(FORMATS), help="In what the tables are written.")
    ] = "csv",
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Verify a pack against its manifest instead; nothing else is asked."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")
    ] = False,
) -> None:
    """Write the closing pack of a run: runs, charges, attempts, exceptions, settlement, audit, manifest.

    Everything is as the ledger was at one moment; gross, fee, net and payout are as Stripe's balance shows
    them. The folder appears when it is whole, or not at all. Exits 3 where something of Stripe's could not be
    read (the manifest says what), and with --check where anything is not what was written.
    """
    output = Output(as_json=as_json)
    with reported(output):
        from worker.export_actions import check_export, export_run

        if check is not None:
            if run is not None or out is not None:
                raise InvalidInput(
                    "--check DIR looks at a pack that is there: it takes neither RUN nor --out"
                )
            check_export(output, check)
            return
        if run is None or out is None:
            raise InvalidInput("say which run and where its pack goes: export RUN --out DIR")
        if format_ not in FORMATS:
            raise InvalidInput(f"--format is one of {', '.join(FORMATS)}")
        asyncio.run(export_run(output, run, out, formats=format_))
