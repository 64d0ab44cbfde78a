"""`chargeonce run list` and `show`: look at runs."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from activities.ledger.database import open_pool
from activities.ledger.outcomes import reasons_of_outcomes, unpaid_lines
from activities.ledger.restores import RestoreLedger
from activities.ledger.runs import Run, RunLedger
from worker.books_view import books_of, render_books
from worker.close_view import render_close
from worker.console_output import Output, table
from worker.environment import load_settings
from worker.plan_preview import read_plan, render_plan, render_plan_versus_actual
from worker.run_advice import describe_canary, describe_recovery
from worker.run_view import (
    ENDED_PHASES,
    SETTLED_COUNTS,
    RunView,
    describe_open,
    describe_wait,
    name_state,
    render_counts,
    render_reasons,
    render_totals,
    render_unpaid,
    sum_up_outcomes,
    totals_of,
    view_run,
)
from worker.workflow_state import WorkflowState, reach_temporal, workflow_state, workflow_states

if TYPE_CHECKING:
    from rich.console import RenderableType

# What a list has no column of its own for: it is summed up as `other`, so that every row adds up.
_LISTED = ("succeeded", "declined", "needs_customer", "canceled", "skipped")
_OTHER = tuple(name for name in SETTLED_COUNTS if name not in _LISTED)


async def list_runs(output: Output, *, limit: int) -> None:
    """Print up to `limit` runs, newest first."""
    settings = load_settings()
    async with open_pool(settings.database_url.get_secret_value(), connections=2) as pool:
        ledger = RunLedger(pool)
        found = await ledger.newest(limit=limit)
        runs = [await _list_entry(ledger, run) for run in found]
        states = await workflow_states(ledger, [run.run_id for run in found if run.phase not in ENDED_PHASES])
    for entry in runs:
        entry["workflow"] = {"state": states.get(entry["run"], WorkflowState.ENDED)}
    output.result({"runs": runs}, lambda: render_list(runs))


async def show_run(output: Output, run_id: str) -> None:
    """Print one run: counts that add up, money, and why what is open waits. Raises RefusedToStart."""
    settings = load_settings()
    async with open_pool(settings.database_url.get_secret_value(), connections=2) as pool:
        ledger = RunLedger(pool)
        run = await ledger.read(run_id)
        view = await view_run(ledger, run_id)
        unpaid, unpaid_count = await unpaid_lines(pool, run_id)
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
            "canary": (run.request or {}).get("canary"),
            "canary_released": run.canary_released,
            "totals": await totals_of(ledger, run_id),
            "reasons": await reasons_of_outcomes(pool, [run_id]),
            "unpaid": unpaid,
            "unpaid_lines": unpaid_count,
            "charging_closed_at": run.charging_closed_at,
            "report": run.newest_report,
            "books": await books_of(settings, pool, run),
            "plan": await read_plan(pool, run_id) if run.phase == "planned" else None,
            "workflow": await _workflow_of(ledger, view),
            "restored": await RestoreLedger(pool).open() is not None,
        }
        document["waiting"] = describe_open(await ledger.waiting(run_id), document)
    backstop = (document["books"] or {}).get("backstop")
    document["backstop"] = settings.proxy_url is not None if backstop is None else backstop
    output.result(document, lambda: render_run(document))


async def _workflow_of(ledger: RunLedger, view: RunView) -> dict[str, Any]:
    """Return what is known of a run's workflow, with its own counters where a worker answers for it."""
    client = None if view.ended else await reach_temporal()
    state = await workflow_state(client, ledger, view.run_id)
    if client is None or state is not WorkflowState.RUNNING:
        return {"state": state}
    from worker.temporal_client import read_progress  # noqa: PLC0415 - of no use for a run that has ended

    progress = await read_progress(client.get_workflow_handle(view.run_id))
    return {"state": state, "answers": progress is not None, **(progress.model_dump() if progress else {})}


async def _list_entry(ledger: RunLedger, run: Run) -> dict[str, Any]:
    view = await view_run(ledger, run.run_id)
    return {**view.document(), "locked_at": run.locked_at, "started_by": run.started_by}


def render_list(runs: list[dict[str, Any]]) -> Iterable["RenderableType"]:
    """Yield one row per run whose counts add up to its lines, and what to type where a workflow was lost."""
    if not runs:
        yield "no runs yet: chargeonce run start --help"
        return
    rows = [
        (
            entry["run"],
            name_state(entry),
            entry["lines"],
            *(entry[name] for name in _LISTED),
            sum(entry[name] for name in _OTHER),
            entry["unknown"],
            entry["not_started"],
            f"{entry['locked_at']:%Y-%m-%d %H:%M}",
            entry["started_by"],
        )
        for entry in runs
    ]
    names = ("run", "state", "lines", *_LISTED, "other", "unknown", "not_started", "since", "started by")
    yield table(names, rows)
    for entry in runs:
        if entry["workflow"]["state"] == WorkflowState.LOST:
            yield f"{entry['run']} has lost its workflow: {describe_recovery(entry['run'])}"
    if any(entry["workflow"]["state"] == WorkflowState.UNKNOWN for entry in runs):
        yield "Temporal does not answer: whether the workflows of open runs still run is not known"


def render_run(document: Mapping[str, Any]) -> Iterable["RenderableType"]:
    """Yield everything that `run show` has to say."""
    yield f"{document['run']}: {name_state(document)}{_because(document['reason'])}"
    started = f"started by {document['started_by']} at {document['locked_at']:%Y-%m-%d %H:%M:%S}"
    yield f"{document['source']}, {started}"
    if document["restored"] and document["phase"] not in ENDED_PHASES:
        yield "the ledger was restored, and nothing is sent for any run: see `chargeonce restore`"
    if document["plan_hash"]:
        approved = f", approved by {document['approved_by']}" if document["approved_by"] else ""
        yield f"plan {document['plan_hash']}{approved}"
    canary = describe_canary(document["canary"])
    if canary is not None and document["phase"] not in ENDED_PHASES and not document["canary_released"]:
        yield canary
    if document["lines"] and document["phase"] != "planned":
        yield sum_up_outcomes(document)
    yield from render_counts(document)
    yield from render_totals(document["totals"])
    yield from render_books(document["books"])
    yield from render_reasons(document["reasons"])
    yield from render_unpaid(document["unpaid"], of=document["unpaid_lines"])
    yield from render_close(document["run"], document["report"])
    yield from _render_plan(document)
    waiting = [(row["lines"], row["state"], row["reason"], row["due"]) for row in document["waiting"]]
    if waiting:
        yield table(("lines", "state", "why it is open", "due (ledger's clock)"), waiting)
    yield from _render_workflow(document["workflow"])
    if wait := describe_wait(document):
        yield wait


def _render_plan(document: Mapping[str, Any]) -> Iterable["RenderableType"]:
    """Yield the plan for whoever is to approve it, and after the run what became of it."""
    if document["plan"]:
        yield from render_plan(document["plan"])
    compared = (document["report"] or {}).get("plan_versus_actual")
    if compared:
        yield from render_plan_versus_actual(compared)


def _render_workflow(workflow: Mapping[str, Any]) -> Iterable[str]:
    if workflow["state"] != WorkflowState.RUNNING:
        return  # what that means for the run is said in the last line
    if not workflow["answers"]:
        yield "its workflow runs, but no worker answers for it: is one running (`chargeonce worker`)?"
        return
    halted = f", halted: {workflow['halted']}" if workflow["halted"] else ""
    yield f"workflow: {workflow['slices_done']} of {workflow['slices']} slices{halted}"


def _because(reason: str | None) -> str:
    return f" ({reason})" if reason else ""
