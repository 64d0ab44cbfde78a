"""`chargeonce run list`, `show` and `tick`: look at runs, and wake one."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from activities.ledger.database import open_pool
from activities.ledger.outcomes import reasons_of_outcomes
from activities.ledger.runs import Run, RunLedger
from worker.books_view import books_of, render_books
from worker.close_view import render_close
from worker.console_output import Output, table
from worker.environment import load_settings
from worker.plan_preview import read_plan, render_plan, render_plan_versus_actual
from worker.run_follow import follow_run
from worker.run_view import (
    ENDED_PHASES,
    describe_wait,
    render_counts,
    render_reasons,
    render_totals,
    totals_of,
    view_run,
)
from worker.temporal_client import connect_temporal, read_progress, wake
from workflows.contracts import RunProgress
from workflows.domain.errors import RefusedToStart

if TYPE_CHECKING:
    from rich.console import RenderableType


async def list_runs(output: Output, *, limit: int) -> None:
    """Print up to `limit` runs, newest first."""
    settings = load_settings()
    async with open_pool(settings.database_url.get_secret_value(), connections=2) as pool:
        ledger = RunLedger(pool)
        runs = [await _list_entry(ledger, run) for run in await ledger.newest(limit=limit)]
    output.result({"runs": runs}, lambda: _render_list(runs))


async def show_run(output: Output, run_id: str) -> None:
    """Print one run: counts that add up, money, and why what is open waits. Raises RefusedToStart."""
    settings = load_settings()
    async with open_pool(settings.database_url.get_secret_value(), connections=2) as pool:
        ledger = RunLedger(pool)
        run = await ledger.read(run_id)
        view = await view_run(ledger, run_id)
        document = {
            **view.document(),
            "account": run.account,
            "period": run.period,
            "source": run.source,
            "started_by": run.started_by,
            "locked_at": run.locked_at,
            "planned_at": run.planned_at,
            "closed_at": run.closed_at,
            "approved_by": run.approved_by,
            "totals": await totals_of(ledger, run_id),
            "reasons": await reasons_of_outcomes(pool, run_id),
            "report": run.report,
            "books": await books_of(settings, pool, run),
            "plan": await read_plan(pool, run_id) if run.phase == "planned" else None,
            "waiting": await ledger.waiting(run_id),
        }
    through_proxy = settings.proxy_url is not None
    document["backstop"] = (document["books"] or {}).get("backstop", through_proxy)
    progress = None if view.ended else await _progress_of(run_id)
    document["workflow"] = None if progress is None else progress.model_dump()
    output.result(document, lambda: _render_run(document))


async def tick_run(output: Output, run_id: str, *, wait: bool) -> None:
    """Wake a run, and with `wait` follow it until nothing more is due. One that has ended needs no waking.

    Raises:
        RefusedToStart: There is no such run, or no worker that could wake it.
        typer.Exit: 1, with `wait`: it is not finished.
    """
    settings = load_settings()
    async with open_pool(settings.database_url.get_secret_value(), connections=2) as pool:
        ledger = RunLedger(pool)
        await ledger.read(run_id)
        handle = (await connect_temporal()).get_workflow_handle(run_id)
        try:
            await wake(handle)
        except RefusedToStart:
            if not (await view_run(ledger, run_id)).ended:
                raise
            output.notice(f"{run_id} has ended: there was nothing to wake")
        if wait:
            await follow_run(output, handle, pool, settings)
            return
        document = (await view_run(ledger, run_id)).document()
    output.result(document, lambda: _render_tick(document))


async def _progress_of(run_id: str) -> RunProgress | None:
    try:
        client = await connect_temporal()
    except RefusedToStart:
        return None
    return await read_progress(client.get_workflow_handle(run_id))


async def _list_entry(ledger: RunLedger, run: Run) -> dict[str, Any]:
    view = await view_run(ledger, run.run_id)
    return {**view.document(), "locked_at": run.locked_at, "started_by": run.started_by}


def _render_list(runs: list[dict[str, Any]]) -> Iterable["RenderableType"]:
    names = ("run", "state", "lines", "succeeded", "declined", "needs_customer", "unknown", "not_started")
    if not runs:
        yield "no runs yet: chargeonce run start --help"
        return
    rows = [
        (
            *(({**entry, "state": _state_of(entry)})[name] for name in names),
            f"{entry['locked_at']:%Y-%m-%d %H:%M}",
            entry["started_by"],
        )
        for entry in runs
    ]
    yield table((*names, "since", "started by"), rows)


def _render_run(document: Mapping[str, Any]) -> Iterable["RenderableType"]:
    yield f"{document['run']}: {_state_of(document)}{_because(document['reason'])}"
    started = f"started by {document['started_by']} at {document['locked_at']:%Y-%m-%d %H:%M:%S}"
    yield f"{document['source']}, {started}"
    if document["plan_hash"]:
        approved = f", approved by {document['approved_by']}" if document["approved_by"] else ""
        yield f"plan {document['plan_hash']}{approved}"
    yield from render_counts(document)
    yield from render_totals(document["totals"])
    yield from render_books(document["books"])
    yield from render_reasons(document["reasons"])
    yield from render_close(document["run"], document["report"])
    yield from _render_plan(document)
    waiting = [
        (
            row["lines"],
            row["state"],
            row["reason"],
            "now" if row["due_at"] is None else f"{row['due_at']:%F %T}",
        )
        for row in document["waiting"]
    ]
    if waiting:
        yield table(("lines", "state", "why it is open", "due (ledger's clock)"), waiting)
    workflow = document["workflow"]
    if workflow is not None:
        halted = f", halted: {workflow['halted']}" if workflow["halted"] else ""
        slices = f"{workflow['slices_done']} of {workflow['slices']} slices"
        yield f"workflow: {workflow['phase']}, {slices}{halted}"
    if wait := describe_wait(document):
        yield wait


def _render_plan(document: Mapping[str, Any]) -> Iterable["RenderableType"]:
    """Yield the plan for whoever is to approve it, and after the run what became of it."""
    if document["plan"]:
        yield from render_plan(document["plan"])
    compared = (document["report"] or {}).get("plan_versus_actual")
    if compared:
        yield from render_plan_versus_actual(compared)


def _render_tick(document: Mapping[str, Any]) -> Iterable["RenderableType"]:
    yield f"{document['run']}: {document['phase']}; look again with chargeonce run show {document['run']}"


def _state_of(document: Mapping[str, Any]) -> str:
    """Return the phase, and beside it what keeps the run from going on."""
    if document["canceling"] and document["phase"] not in ENDED_PHASES:
        return f"{document['phase']}, being canceled"
    return f"{document['phase']}, held ({document['hold']})" if document["hold"] else str(document["phase"])


def _because(reason: str | None) -> str:
    return f" ({reason})" if reason else ""
