"""A drift report for a terminal; what a hostile name could do to one is made readable by `Output`."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from worker.console_output import table
from worker.drift_report.findings import MEANINGS, DriftReport, Finding
from worker.plan_preview import describe_duration
from workflows.domain.counted import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

FINDINGS_SHOWN_MAX = 50
COMMANDS_SHOWN_MAX = 20
_VERDICTS = {
    "clean": "clean: ledger and Stripe agree",
    "incomplete": "incomplete: nothing differs in what could be read, which proves nothing of the rest",
    "under way": "under way: this is what has been found so far",
    "failed": "failed: what it found until then stands",
}


def render_report(report: DriftReport) -> Iterable["RenderableType"]:
    """Yield the whole report: the verdict, the numbers, the differences by kind, and what to type."""
    yield f"{report.subject}: {_verdict(report)}"
    repairs = "repairs what moves no money" if report.repair else "repairs nothing"
    yield (
        f"{report.reconciliation_id}, begun {report.opened_at:%Y-%m-%d %H:%M:%S} by {report.who} "
        f"({report.reason}); {repairs}"
    )
    yield from render_numbers(report)
    yield from (f"not read: {reason}" for reason in report.incomplete)
    yield from (f"note: {remark}" for remark in report.remarks)
    places = FINDINGS_SHOWN_MAX
    for kind, found in report.by_kind:
        if rows := [_row(finding) for finding in found[:places]]:
            yield f"{kind}: {MEANINGS[kind]}"
            yield table(("first seen", "age", "about", "ledger says", "Stripe says", "repair", "state"), rows)
        places -= len(rows)
    if (rest := len(report.findings) - FINDINGS_SHOWN_MAX) > 0:
        yield f"and {counted(rest, 'difference')} more: --json, --csv FILE or --html FILE has them all"
    yield from render_commands(report.open)


def render_numbers(report: DriftReport) -> Iterable["RenderableType"]:
    """Yield what was compared, and what it took."""
    totals = report.totals
    if totals is None:
        return
    yield (
        f"{counted(totals['charges'], 'charge')} compared, {totals['differing']} differ, "
        f"{totals['settled']} settled on the way, {totals['in_flight']} in flight"
    )
    yield (
        f"requests: {report.requests} for pages and looks, of {totals['bound']} allowed "
        f"({totals['how']}: {_counts(totals['requests'])})"
    )
    if not totals["events_looked_for"]:
        yield "no event of the account was ever received, so none was looked for"
    if totals["found"]:
        repaired = _counts(totals["repaired"]) or "none"
        yield f"found: {_counts(totals['found'])}; repaired: {repaired}"


def render_commands(findings: Sequence[Finding]) -> Iterable[str]:
    """Yield what to type, each command once, the most urgent first."""
    commands = list(dict.fromkeys(finding.command for finding in findings if finding.command))
    if commands:
        yield "to type:"
        yield from (f"  {command}" for command in commands[:COMMANDS_SHOWN_MAX])
    if (rest := len(commands) - COMMANDS_SHOWN_MAX) > 0:
        yield f"  and {counted(rest, 'command')} more: --json, --csv FILE or --html FILE has them all"


def _verdict(report: DriftReport) -> str:
    if report.verdict != "drift":
        return _VERDICTS[report.verdict]
    open_drift = counted(len(report.open), "difference is", "differences are")
    return f"{open_drift} open"


def _row(finding: Finding) -> tuple[Any, ...]:
    amount = f" {finding.amount}" if finding.amount else ""
    return (
        f"{finding.first_seen_at:%Y-%m-%d %H:%M}",
        describe_duration(finding.age_seconds),
        finding.where,
        finding.ledger_says,
        finding.stripe_says,
        f"{finding.repair}{amount}",
        finding.standing,
    )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number)
