"""What a close found, as people read it under the counts and sums of the run."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from worker.console_output import table

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


def _render_durations(durations: Mapping[str, Any]) -> Iterable["RenderableType"]:
    names = ("planning", "approval", "charging", "held", "all", "estimated_charging")
    rows = [
        (name.replace("_", " "), durations[f"{name}_seconds"])
        for name in names
        if durations[f"{name}_seconds"] is not None
    ]
    if durations["limit_seconds"] is not None:
        rows.append(("limit", durations["limit_seconds"]))
    yield table(("time", "seconds"), rows)
    if durations["within_limit"] is False:
        yield "it took longer than its limit"


def _render_double_charges(check: Mapping[str, Any], verify: str) -> Iterable["RenderableType"]:
    match check["verdict"]:
        case "clean":
            yield f"no double charge at Stripe (looked at {check['how']}, {check['requests']} requests)"
        case "not_checked":
            yield f"double charges were not checked: {check['not_checked']}; ask with {verify}"
        case _:
            yield f"DOUBLE CHARGES at Stripe: {check['found']} lines; see {verify}"
            named = list(check["charges"].items())[:CHARGES_NAMED_MAX]
            yield table(("charge", "paid by"), [(charge, ", ".join(intents)) for charge, intents in named])
    if check["surprises"]:
        yield f"{check['surprises']} lines are paid otherwise than the ledger says: see {verify}"
