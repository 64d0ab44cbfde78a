"""What `chargeonce reconcile list` and `show` say, and how every form of `reconcile` ends."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from activities.ledger.clock import read_clock
from activities.ledger.database import Pool
from activities.ledger.drift import DriftLedger
from worker.console_output import Output, table
from worker.drift_report.findings import DriftReport, report_of
from worker.drift_report.page import to_html
from worker.drift_report.spreadsheet import to_csv
from worker.drift_report.terminal import render_report
from worker.drift_report.whole_file import refuse_unwritable, write_whole
from worker.environment import load_ledger_settings
from worker.failures import EXIT_DRIFT
from worker.ledger_access import open_ledger
from workflows.domain.echo import echo
from workflows.domain.errors import RefusedToStart

if TYPE_CHECKING:
    from rich.console import RenderableType

    from activities.ledger.drift import Reconciliation
    from worker.settings import LedgerSettings


async def list_reconciliations(output: Output, *, limit: int) -> None:
    """Print up to `limit` reconciliations, newest first."""
    async with open_ledger(load_ledger_settings()) as pool:
        found = [_entry(one) for one in await DriftLedger(pool).newest(limit)]
    output.result({"reconciliations": found}, lambda: _render_list(found))


async def show_reconciliation(
    output: Output, reconciliation_id: str, *, csv_file: Path | None, html_file: Path | None
) -> None:
    """Print one reconciliation, and write its files.

    Raises:
        RefusedToStart: There is no such reconciliation.
        InvalidInput: A file can't be written.
        typer.Exit: 3: a difference is open, or something could not be read.
    """
    refuse_unwritable_files(csv_file, html_file)
    settings = load_ledger_settings()
    async with open_ledger(settings) as pool:
        report = await read_report(pool, settings, reconciliation_id)
    print_report(output, report, csv_file=csv_file, html_file=html_file)


async def read_report(pool: Pool, settings: "LedgerSettings", reconciliation_id: str) -> DriftReport:
    """Return a reconciliation with what it found. Raises RefusedToStart where there is none of that id."""
    ledger = DriftLedger(pool)
    kept = await ledger.reconciliation(reconciliation_id)
    if kept is None:
        raise RefusedToStart(
            f"there is no reconciliation {echo(reconciliation_id)}: see `chargeonce reconcile list`"
        )
    rows = await ledger.findings(
        account=None, run_id=None, open_only=False, reconciliation_id=reconciliation_id
    )
    clock = await read_clock(settings.database_url.get_secret_value())
    return report_of(kept, rows, at=clock.now)


def refuse_unwritable_files(*paths: Path | None) -> None:
    """Raise InvalidInput where one of the files could not be written: before the work, not after it."""
    for path in paths:
        if path is not None:
            refuse_unwritable(path)


def print_report(
    output: Output, report: DriftReport, *, csv_file: Path | None, html_file: Path | None
) -> None:
    """Write the files and print the report.

    Raises:
        InvalidInput: A file can't be written.
        typer.Exit: 3: it is not clean.
    """
    for path, render in ((csv_file, to_csv), (html_file, to_html)):
        if path is not None:
            write_whole(path, render(report))
            output.notice(f"written: {path}")
    output.result(report.as_json(), lambda: render_report(report))
    if report.verdict not in {"clean", "under way"}:
        raise typer.Exit(EXIT_DRIFT)


def _entry(one: "Reconciliation") -> dict[str, Any]:
    totals: Mapping[str, Any] = one.report or {}
    return {
        "reconciliation": one.reconciliation_id,
        "account": one.account,
        "run": one.run_id,
        "since": one.since,
        "until": one.until,
        "repair": one.repair,
        "who": one.who,
        "reason": one.reason,
        "phase": one.phase,
        "how": one.how,
        "opened_at": one.opened_at,
        "closed_at": one.closed_at,
        "charges": totals.get("charges"),
        "found": totals.get("found"),
        "repaired": totals.get("repaired"),
        "open": totals.get("open"),
        "incomplete": totals.get("incomplete"),
    }


def _render_list(found: Sequence[Mapping[str, Any]]) -> Iterable["RenderableType"]:
    if not found:
        yield "no reconciliations yet: chargeonce reconcile --help"
        return
    rows = [
        (
            one["reconciliation"],
            one["phase"],
            f"{one['opened_at']:%Y-%m-%d %H:%M}",
            one["charges"],
            _sum(one["found"]),
            _sum(one["repaired"]),
            _sum(one["open"]),
            "; ".join(one["incomplete"] or ()),
            one["who"],
        )
        for one in found
    ]
    names = ("reconciliation", "", "begun", "charges", "found", "repaired", "left open", "not read", "by")
    yield table(names, rows)


def _sum(counts: Mapping[str, int] | None) -> int | None:
    return None if counts is None else sum(counts.values())
