"""One run as people and scripts see it, read from the ledger with counts that add up (invariant I9)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from activities.ledger.runs import DueSummary, Run, RunLedger
from worker.console_output import table
from worker.run_advice import advise
from workflows.domain.errors import RefusedToStart
from workflows.domain.money import format_money
from workflows.domain.states import IN_FLIGHT, NOT_STARTED, State

if TYPE_CHECKING:
    from rich.console import RenderableType

SETTLED_COUNTS = (
    "succeeded", "processing", "declined", "needs_customer", "refused", "review", "canceled", "skipped",
    "taken_over",
)  # fmt: skip
ENDED_PHASES = frozenset({"closed", "failed"})


@dataclass(frozen=True, slots=True)
class RunView:
    """A run at one moment. `due` and `standings` are None and empty until the run has its row."""

    run_id: str
    run: Run | None
    standings: Mapping[str, int]
    due: DueSummary | None

    @property
    def phase(self) -> str:
        """The ledger's phase, or `starting` before the run has its row."""
        return "starting" if self.run is None else self.run.phase

    @property
    def ended(self) -> bool:
        """Whether nothing will happen in this run any more."""
        return self.phase in ENDED_PHASES

    @property
    def counts(self) -> dict[str, int]:
        """Lines by standing; they add up to `lines`. `unknown` is what is in flight: only Stripe knows."""
        standings = self.standings
        counts = {name: standings.get(name, 0) for name in SETTLED_COUNTS}
        counts["skipped"] += standings.get("skipped_rows", 0)
        counts["unknown"] = sum(standings.get(state, 0) for state in IN_FLIGHT)
        counts["not_started"] = sum(standings.get(state, 0) for state in NOT_STARTED)
        return counts

    @property
    def lines(self) -> int:
        """How many lines the run selected; before the plan is frozen, how many there are so far."""
        if self.run is not None and self.run.selected is not None:
            return self.run.selected
        return sum(self.standings.values())

    @property
    def settled(self) -> int:
        """How many lines have got where they were going."""
        counts = self.counts
        return self.lines - counts["unknown"] - counts["not_started"]

    @property
    def next_due(self) -> datetime | None:
        """When the next open charge is due by the ledger's clock; None where nothing waits."""
        if self.due is None or self.due.next_due_epoch_seconds is None:
            return None
        return datetime.fromtimestamp(self.due.next_due_epoch_seconds, tz=UTC)

    def document(self) -> dict[str, Any]:
        """Return the part of a result that every command about a run has."""
        run = self.run
        return {
            "run": self.run_id,
            "phase": self.phase,
            "reason": None if run is None else run.reason,
            "hold": None if run is None else run.hold,
            "hold_reason": None if run is None else run.hold_reason,
            "canceling": run is not None and run.canceling,
            "plan_hash": None if run is None else run.plan_hash,
            "lines": self.lines,
            **self.counts,
            "next_due": self.next_due,
        }


async def view_run(ledger: RunLedger, run_id: str) -> RunView:
    """Return a run as it is now; before its row exists, a view in phase `starting`."""
    try:
        run = await ledger.read(run_id)
    except RefusedToStart:
        return RunView(run_id, None, {}, None)
    if run.phase == "locked":
        return RunView(run_id, run, {}, None)
    return RunView(run_id, run, await ledger.counts(run_id), await ledger.due(run_id))


async def totals_of(ledger: RunLedger, run_id: str) -> dict[str, dict[str, Any]]:
    """Return lines and minor units per currency, and within it per state."""
    totals: dict[str, dict[str, Any]] = {}
    for row in await ledger.amounts(run_id):
        total = totals.setdefault(row["currency"], {"lines": 0, "amount_minor": 0, "by_state": {}})
        if row["state"] != State.SKIPPED:
            total["lines"] += row["lines"]
            total["amount_minor"] += row["amount_minor"]
        total["by_state"][row["state"]] = {"lines": row["lines"], "amount_minor": row["amount_minor"]}
    return totals


def render_counts(document: Mapping[str, Any]) -> Iterable["RenderableType"]:
    """Yield the counts of a run that are not 0, and their sum."""
    names = [name for name in (*SETTLED_COUNTS, "unknown", "not_started") if document.get(name)]
    rows = [(name, document[name]) for name in names]
    yield table(("standing", "lines"), [*rows, ("all", document["lines"])])


def render_totals(totals: Mapping[str, Mapping[str, Any]]) -> Iterable["RenderableType"]:
    """Yield money by currency and state."""
    rows: list[Sequence[object]] = [
        (currency.upper(), state, part["lines"], format_money(part["amount_minor"], currency))
        for currency, total in totals.items()
        for state, part in total["by_state"].items()
    ]
    if rows:
        yield table(("currency", "state", "lines", "amount"), rows)


def render_reasons(reasons: Sequence[Mapping[str, Any]]) -> Iterable["RenderableType"]:
    """Yield why lines ended otherwise than paid."""
    if reasons:
        rows = [(row["lines"], row["standing"], row["reason"]) for row in reasons]
        yield table(("lines", "not paid", "why"), rows)


def describe_wait(document: Mapping[str, Any]) -> str | None:
    """Return what is still open and what it waits for, a person or a time; None for a run that has ended."""
    if document["phase"] in ENDED_PHASES:
        return None
    open_lines = document["unknown"] + document["not_started"]
    if document["canceling"]:
        return f"it is being canceled: {open_lines} lines are open, {document['unknown']} of them in flight"
    advice = advise(document)
    if advice is not None:
        return f"{open_lines} lines are open, {document['unknown']} of them in flight; {advice}"
    due = document["next_due"]
    until = "" if due is None else f"; the next is due {due:%Y-%m-%d %H:%M:%S} UTC by the ledger's clock"
    return (
        f"{open_lines} lines are open, {document['unknown']} of them with an unknown outcome{until}. "
        f"It goes on by itself; to wake it: chargeonce run tick {document['run']}"
    )
