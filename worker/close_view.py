"""What a close found, as people read it under the counts and sums of the run."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from worker.console_output import table
from workflows.domain.counted import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

CHARGES_NAMED_MAX = 20


def render_close(run_id: str, report: Mapping[str, Any] | None) -> Iterable["RenderableType"]:
    """Yield the report of a closed run; nothing for one that is open or closed before there were reports."""
    if not report:
        return
    yield from _render_durations(report["durations"])
    if canceled := report["canceled"]:
        yield f"canceled by {canceled['who']}: {canceled['reason']}"
    holds: Sequence[Mapping[str, Any]] = report["holds"]
    if holds:
        rows = [(hold["kind"], hold["seconds"], hold["reason"], hold["ended_by"]) for hold in holds]
        yield table(("held by", "seconds", "why", "until"), rows)
    yield from _render_double_charges(report["double_charges"], f"chargeonce verify {run_id}")
    waited = [
        (kind, outcome.replace("_", " "), lines)
        for kind, outcomes in (report.get("waited") or {}).items()
        for outcome, lines in outcomes.items()
    ]
    if waited:
        yield table(("waited for", "until", "lines"), waited)


def _render_durations(durations: Mapping[str, Any]) -> Iterable["RenderableType"]:
    names = ("planning", "approval", "charging", "retrying", "held", "all", "estimated_charging")
    rows = [
        (name.replace("_", " "), durations[f"{name}_seconds"])
        for name in names
        if durations.get(f"{name}_seconds") is not None
    ]
    if durations["limit_seconds"] is not None:
        rows.append(("limit", durations["limit_seconds"]))
    yield table(("time", "seconds"), rows)
    if durations["within_limit"] is False:
        yield "it took longer than its limit"


def _render_double_charges(check: Mapping[str, Any], verify: str) -> Iterable["RenderableType"]:
    match check["verdict"]:
        case "clean" if not check["requests"]:
            yield f"no double charge: {check['how']}, so there was nothing to ask Stripe"
        case "clean":
            asked = counted(check["requests"], "request")
            yield f"no double charge at Stripe (looked at {check['how']}, {asked})"
        case "not_checked":
            yield f"double charges were not checked: {check['not_checked']}; ask with {verify}"
        case _:
            yield f"DOUBLE CHARGES at Stripe: {counted(check['found'], 'line')}; see {verify}"
            named = list(check["charges"].items())[:CHARGES_NAMED_MAX]
            yield table(("charge", "paid by"), [(charge, ", ".join(intents)) for charge, intents in named])
    if check["surprises"]:
        paid = counted(check["surprises"], "line")
        yield f"paid otherwise than the ledger says: {paid}; see {verify}"
