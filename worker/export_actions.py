"""What `chargeonce export` does, and what it prints."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from activities.export.check import Checked, check_pack
from activities.export.pack import Format, Pack, write_pack
from activities.export.whole_folder import refuse_unusable
from activities.ledger.database import open_pool
from worker.console_output import Output, table
from worker.environment import load_settings
from worker.failures import EXIT_DRIFT
from worker.money_shown import show_money
from worker.wiring import open_accounts

if TYPE_CHECKING:
    from rich.console import RenderableType

_NOT_IN_RESULTS = ("digests", "lines_per_digest", "columns")


async def export_run(output: Output, run_id: str, out: Path, *, formats: str) -> None:
    """Write the closing pack of a run and say what is in it.

    Raises:
        InvalidInput: `out` can't be used.
        RefusedToStart: Nothing is configured, or there is no such run.
        typer.Exit: 3: it is written, and something of Stripe's could not be read.
    """
    refuse_unusable(out)
    settings = load_settings()
    async with (
        open_pool(settings.database_url.get_secret_value(), connections=2) as pool,
        open_accounts(settings, pool) as accounts,
    ):
        pack = await write_pack(pool, accounts, run_id, out, formats=Format(formats))
    output.result(_document(pack), lambda: _render(pack))
    if not pack.complete:
        raise typer.Exit(EXIT_DRIFT)


def _document(pack: Pack) -> dict[str, Any]:
    files = [
        {name: value for name, value in entry.items() if name not in _NOT_IN_RESULTS}
        for entry in pack.manifest["files"]
    ]
    return {"folder": str(pack.folder), **pack.manifest, "files": files}


def _render(pack: Pack) -> Iterable["RenderableType"]:
    manifest = pack.manifest
    yield f"{manifest['run']}: its pack is in {pack.folder}, as of {manifest['snapshot_at']}"
    files = [(entry["name"], entry.get("rows"), entry["bytes"]) for entry in manifest["files"]]
    yield table(("file", "rows", "bytes"), files)
    yield from _render_totals(manifest)
    if not manifest["closed"]:
        yield f"the run is {manifest['phase']}, not closed: a later pack may say more"
    for gap in manifest["incomplete"]:
        yield f"incomplete: {gap}"


def _render_totals(manifest: Mapping[str, Any]) -> Iterable["RenderableType"]:
    settlement = manifest["settlement"]
    rows = []
    for currency in sorted({*manifest["totals"], *settlement["totals"]}):
        ledger, stripe = manifest["totals"].get(currency, {}), settlement["totals"].get(currency, {})
        missing = settlement["without_transaction"].get(currency, {}).get("lines", 0)
        amounts = (ledger.get("paid_minor", 0), *(stripe.get(name, 0) for name in _SHOWN))
        rows.append((currency, *(show_money(amount, currency) for amount in amounts), missing))
    if rows:
        names = ("currency", "paid (ledger)", "gross (Stripe)", "fee", "net", "paid out", "lines not shown")
        yield table(names, rows)


_SHOWN = ("gross_minor", "fee_minor", "net_minor", "paid_out_minor")


def check_export(output: Output, folder: Path) -> None:
    """Verify a pack and say what is wrong with it.

    Raises:
        InvalidInput: There is no pack.
        typer.Exit: 3: something is not what was written.
    """
    checked = check_pack(folder)
    output.result(
        {
            "folder": str(folder),
            "good": checked.good,
            "run": checked.manifest.get("run"),
            "complete": checked.manifest.get("complete"),
            "rows": dict(checked.rows),
            "findings": [finding.as_json() for finding in checked.findings],
        },
        lambda: _render_check(folder, checked),
    )
    if not checked.good:
        raise typer.Exit(EXIT_DRIFT)


def _render_check(folder: Path, checked: Checked) -> Iterable[str]:
    for finding in checked.findings:
        yield finding.as_text()
    if checked.good:
        files = len(checked.manifest["files"])
        rows = sum(checked.rows.values())
        yield f"{folder} is what was written: {files} files, {rows} rows, totals included"
        if not checked.manifest["complete"]:
            yield f"it was incomplete when it was written: {'; '.join(checked.manifest['incomplete'])}"
