"""One run as people and scripts see it, read from the ledger with counts that add up (invariant I9)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from activities.ledger.follow_ups import FollowUpsDue
from activities.ledger.runs import DueSummary, Run, RunLedger
from worker.console_output import table
from worker.run_advice import advise, describe_recovery
from workflows.domain.counted import counted
from workflows.domain.errors import RefusedToStart
from workflows.domain.money import format_money
from workflows.domain.states import IN_FLIGHT, NOT_STARTED, State

if TYPE_CHECKING:
    from rich.console import RenderableType

SETTLED_COUNTS = (
    "succeeded", "processing", "declined", "needs_customer", "refused", "review", "canceled", "skipped",
    "taken_over",
)  # fmt: skip
NOT_PAID = ("declined", "needs_customer", "refused", "review", "canceled", "skipped", "taken_over")
ENDED_PHASES = frozenset({"closed", "failed"})
_PHASES = {"locked": "planning", "planned": "waits for approval"}
# States of which nothing has left for the first time: what holds a run holds these, and no others.
_HELD_BACK = frozenset({"planned", "prepared"})


@dataclass(frozen=True, slots=True)
class RunView:
    """A run at one moment. `due` and `standings` are None and empty until the run has its row."""

    run_id: str
    run: Run | None
    standings: Mapping[str, int]
    due: DueSummary | None
    waits_for: FollowUpsDue | None = None  # in phase `retrying`

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
            "waits_for": None if self.waits_for is None else _describe_waiting(self.waits_for),
        }


async def view_run(ledger: RunLedger, run_id: str) -> RunView:
    """Return a run as it is now; before its row exists, a view in phase `starting`."""
    try:
        run = await ledger.read(run_id)
    except RefusedToStart:
        return RunView(run_id, None, {}, None)
    if run.phase == "locked":
        return RunView(run_id, run, {}, None)
    waits_for = await ledger.follow_ups(run_id) if run.phase == "retrying" else None
    return RunView(run_id, run, await ledger.counts(run_id), await ledger.due(run_id), waits_for)


def _describe_waiting(waits_for: FollowUpsDue) -> dict[str, Any]:
    next_due = waits_for.next_due_epoch_seconds
    return {
        "retries": waits_for.retries,
        "customers": waits_for.customers,
        "debits": waits_for.debits,
        "due_now": waits_for.due_now,
        "next_due": None if next_due is None else datetime.fromtimestamp(next_due, tz=UTC),
    }


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


def name_state(document: Mapping[str, Any]) -> str:
    """Return where a run is, and beside it what keeps it from going on: the same words everywhere.

    `document` is `RunView.document()`, with or without `workflow`.
    """
    phase = _PHASES.get(document["phase"], document["phase"])
    if document["phase"] in ENDED_PHASES:
        return f"{phase} (canceled)" if document["canceling"] else str(phase)
    parts = [phase]
    if document["canceling"]:
        parts.append("being canceled")
    elif document["hold"]:
        parts.append(f"held ({document['hold']})")
    if _workflow_of(document) == "lost":
        parts.append("its workflow is lost")
    return ", ".join(parts)


def sum_up_outcomes(document: Mapping[str, Any]) -> str:
    """Return in one sentence how many lines are paid and how many are not, by where they stand."""
    paid = document["succeeded"]
    others = [f"{document[name]} {name.replace('_', ' ')}" for name in NOT_PAID if document[name]]
    not_paid = sum(document[name] for name in NOT_PAID)
    told = f"{counted(paid, 'line')} paid, {not_paid} not paid"
    if others:
        told += f" ({', '.join(others)})"
    if document["processing"]:
        told += f", {document['processing']} on the way (a debit takes days)"
    open_lines = document["unknown"] + document["not_started"]
    return f"{told}, {open_lines} open" if open_lines else told


def describe_open(rows: Sequence[Mapping[str, Any]], document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return why open lines are open and when they are due, by what keeps the run as a whole.

    `rows` are `RunLedger.waiting`'s; a `due_at` of None stays None where nothing is due before a person has
    decided, and `due` says which of the two it is.
    """
    return [{**row, "reason": _why_open(row, document), "due": _due(row, document)} for row in rows]


def _why_open(row: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    if document["canceling"]:
        return "it is to be canceled"
    if row["state"] not in _HELD_BACK or row["due_at"] is not None:
        return str(row["reason"] or "in progress")
    if document["phase"] == "planned":
        return "waits for approval"
    return f"held ({document['hold']})" if document["hold"] else "its turn comes"


def _due(row: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    kept = document["phase"] == "planned" or document["hold"] is not None
    if kept and not document["canceling"] and row["state"] in _HELD_BACK:
        return "when somebody has decided"
    return "now" if row["due_at"] is None else f"{row['due_at']:%Y-%m-%d %H:%M:%S}"


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
        yield table(("lines", "not paid", "why"), rows, title="not paid, as it stands now")


def render_unpaid(lines: Sequence[Mapping[str, Any]], *, of: int) -> Iterable["RenderableType"]:
    """Yield lines that were to be charged and are not, by name; `of` is how many of them there are."""
    if not lines:
        return
    rows = [
        (
            f"{line['customer']}/{line['line']}",
            format_money(line["amount_minor"], line["currency"]),
            line["standing"],
            line["reason"],
        )
        for line in lines
    ]
    title = "unpaid lines" if len(lines) == of else f"the first {len(lines)} of {of:,} unpaid lines"
    yield table(("customer/line", "amount", "stands", "why"), rows, title=title)


def describe_wait(document: Mapping[str, Any]) -> str | None:
    """Return what is still open and what it waits for, a person or a time; None for a run that has ended.

    `document` may have `workflow` with what is known of it; without, it is taken to run.
    """
    if document["phase"] in ENDED_PHASES:
        return None
    unknown = document["unknown"]
    left = f"{counted(unknown + document['not_started'], 'line')} open, {unknown} in flight"
    workflow = _workflow_of(document)
    if workflow == "lost":
        return (
            f"{left}; its workflow was lost (it does not run any more), so nobody works on it, and no "
            f"decision reaches it, until: {describe_recovery(document['run'])}"
        )
    doubt = ""
    if workflow == "unknown":
        doubt = ". Temporal does not answer, so whether its workflow still runs is not known"
    if document["canceling"]:
        return f"{left}; it is being canceled{doubt}"
    advice = advise(document)
    if advice is not None:
        return f"{left}; {advice}{doubt}"
    if document.get("waits_for") is not None and not doubt:
        return f"its charging is over; {_tell_waiting(document['waits_for'])}; {_to_wake(document['run'])}"
    due = document["next_due"]
    until = "" if due is None else f"; the next is due {due:%Y-%m-%d %H:%M:%S} UTC by the ledger's clock"
    if doubt:
        return f"{left}{until}{doubt}"
    return f"{left}{until}. It goes on by itself; {_to_wake(document['run'])}"


def _tell_waiting(waits_for: Mapping[str, Any]) -> str:
    """Return what a run waits for over days, and when the next of it is due."""
    told = [
        told
        for lines, told in (
            (waits_for["retries"], f"{counted(waits_for['retries'], 'line')} will be tried again"),
            (waits_for["customers"], f"{counted(waits_for['customers'], 'customer')} must pay by themselves"),
            (waits_for["debits"], f"{counted(waits_for['debits'], 'debit')} on the way"),
        )
        if lines
    ]
    due = waits_for["next_due"]
    until = "" if due is None else f"; the next is due {due:%Y-%m-%d %H:%M:%S} UTC by the ledger's clock"
    return (", ".join(told) or "nothing is waited for any more") + until


def _to_wake(run_id: str) -> str:
    return f"to wake it: chargeonce run tick {run_id}"


def _workflow_of(document: Mapping[str, Any]) -> str | None:
    workflow = document.get("workflow")
    return None if workflow is None else workflow["state"]
