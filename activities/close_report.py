"""What a run came to: counted, priced, timed and checked against Stripe, then frozen with its close.

Stripe is asked before the transaction that closes. If it does not answer, the report says that it was not
checked and why, and the run closes all the same: a run that is through must not stay open over a question
that `chargeonce verify` can ask at any time.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from activities.accounts import Accounts
from activities.double_charges import DoubleCharges, find_double_charges, not_checked
from activities.ledger.closing import CloseFacts, close_charging_with_report, close_with_report
from activities.ledger.control import HOLD_ACTIONS
from activities.ledger.database import Pool
from activities.ledger.notifications import NotificationLedger
from activities.ledger.runs import Run, RunLedger
from activities.plan_versus_actual import PlanVersusActual, compare
from activities.three_totals import ThreeTotals, totals_side_by_side
from activities.vault import READING
from workflows.contracts import RunKey
from workflows.domain.errors import RefusedToStart, StaleWrite, invariant

HOLDS_NAMED_MAX = 100
MONEY_STATES = ("succeeded", "processing")
_HELD_BY = {action: hold for hold, action in HOLD_ACTIONS.items()}
_ENDS_HOLD = frozenset({"resumed", "canary_released", "breaker_closed", "cap_raised", "cancel_requested"})


@dataclass(frozen=True, slots=True)
class Closer:
    """Closes runs with their reports."""

    pool: Pool
    runs: RunLedger
    accounts: Accounts

    async def close(self, run: RunKey) -> Run:
        """Ask Stripe, then close with everything that is known. A closed run is returned as it is.

        Raises:
            StaleWrite: Some charge is not settled after all.
        """
        found = await self.runs.read(run.run_id)
        if found.phase == "closed":
            return found
        return await close_with_report(self.pool, run.run_id, await self._look(run))

    async def close_charging(self, run: RunKey) -> bool:
        """Ask Stripe, then close the charging of a run that waits for something; return whether it is closed.

        Raises:
            StaleWrite: Some charge is not settled after all.
        """
        if (await self.runs.read(run.run_id)).phase == "retrying":
            return True
        return await close_charging_with_report(self.pool, run.run_id, await self._look(run))

    async def _look(self, run: RunKey) -> Callable[[CloseFacts], Mapping[str, Any]]:
        """Ask Stripe and compare the books; return what makes a report of that and of the ledger's facts."""
        if (await self.runs.due(run.run_id)).open:
            raise StaleWrite(f"run {run.run_id} still has open charges")
        double_charges = await self._look_for_double_charges(run)
        compared = await compare(self.pool, run.run_id)
        books = await totals_side_by_side(
            self.pool,
            run.run_id,
            stripe=double_charges.paid_minor if double_charges.not_checked is None else None,
            not_asked=double_charges.not_checked,
        )

        def assemble(facts: CloseFacts) -> Mapping[str, Any]:
            return assemble_report(facts, double_charges, compared, books)

        return assemble

    async def announced(self, run: RunKey) -> int:
        """Return how many notifications of the run wait to be delivered."""
        return await NotificationLedger(self.pool).waiting(run.run_id)

    async def _look_for_double_charges(self, run: RunKey) -> DoubleCharges:
        try:
            parts = await self.accounts.of(run, READING)
        except RefusedToStart as refused:
            return not_checked(str(refused))
        return await find_double_charges(self.pool, parts.gateway, parts.limiter, parts.account, run.run_id)


def assemble_report(
    facts: CloseFacts, double_charges: DoubleCharges, compared: PlanVersusActual, books: ThreeTotals
) -> dict[str, Any]:
    """Return the report as plain values. Raises InvariantViolation where the counts do not add up (I9)."""
    counted, selected = sum(facts.counts.values()), facts.run["selected"] or 0
    invariant(counted == selected, f"{counted} of {selected} lines are accounted for (I9)")
    holds = list(held_periods(facts.events, facts.now))
    return {
        "counts": dict(facts.counts),
        "selected": selected,
        "totals": _totals(facts),
        "durations": _durations(facts, holds),
        "holds": [hold.as_json() for hold in holds[-HOLDS_NAMED_MAX:]],
        "decisions": dict(Counter(event["action"] for event in facts.events)),
        "canceled": _decision(facts.events, "cancel_requested"),
        "approved": _decision(facts.events, "approved"),
        "plan_versus_actual": compared.document(),
        "double_charges": double_charges.as_json(),
        "books": books.as_json(),
        "waiting": _waiting(facts),
        "waited": _waited(facts),
    }


@dataclass(frozen=True, slots=True)
class HeldPeriod:
    """A time in which a run started nothing new."""

    kind: str
    since: datetime
    until: datetime
    reason: str
    who: str
    ended_by: str

    @property
    def seconds(self) -> float:
        """How long."""
        return (self.until - self.since).total_seconds()

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "kind": self.kind,
            "since": self.since.isoformat(),
            "until": self.until.isoformat(),
            "seconds": round(self.seconds, 3),
            "who": self.who,
            "reason": self.reason,
            "ended_by": self.ended_by,
        }


def held_periods(events: Sequence[Mapping[str, Any]], now: datetime) -> Iterator[HeldPeriod]:
    """Yield when and why a run was held, from the audit trail in its order. `now` ends what is not ended."""
    held: Mapping[str, Any] | None = None
    for event in events:
        action = event["action"]
        ends = action in _ENDS_HOLD and (action != "cap_raised" or event["detail"].get("resumed") is True)
        if held is not None and (ends or action in _HELD_BY):
            yield _period(held, event["at"], action)
            held = None
        if action in _HELD_BY:
            held = event
    if held is not None:
        yield _period(held, now, "closed")


def _period(held: Mapping[str, Any], until: datetime, ended_by: str) -> HeldPeriod:
    return HeldPeriod(
        kind=_HELD_BY[held["action"]],
        since=held["at"],
        until=until,
        reason=held["reason"],
        who=held["who"],
        ended_by=ended_by,
    )


def _decision(events: Sequence[Mapping[str, Any]], action: str) -> dict[str, Any] | None:
    for event in events:
        if event["action"] == action:
            return {"at": event["at"].isoformat(), "who": event["who"], "reason": event["reason"]}
    return None


def _totals(facts: CloseFacts) -> dict[str, dict[str, Any]]:
    totals: dict[str, dict[str, Any]] = {}
    for row in facts.caps:
        totals[row["currency"]] = {
            "planned_lines": row["lines"],
            "planned_minor": row["amount_minor"],
            "cap_minor": row["cap_minor"],
            "moved_minor": 0,
            "by_state": {},
        }
    for row in facts.amounts:
        total = totals.setdefault(
            row["currency"],
            {"planned_lines": 0, "planned_minor": 0, "cap_minor": 0, "moved_minor": 0, "by_state": {}},
        )
        total["by_state"][row["state"]] = {"lines": row["lines"], "amount_minor": row["amount_minor"]}
        if row["state"] in MONEY_STATES:
            total["moved_minor"] += row["amount_minor"]
    return totals


def _durations(facts: CloseFacts, holds: Sequence[HeldPeriod]) -> dict[str, Any]:
    """Return seconds by the ledger's clock. The limit is for approval to the charging's end, holds too."""
    run, limit_seconds = facts.run, (facts.run["request"] or {}).get("duration_limit_seconds")
    planning = [event["detail"] for event in facts.events if event["action"] == "planned"]
    locked, planned, approved, now = (run[name] for name in ("locked_at", "planned_at", "approved_at", "now"))
    charging_closed = run["charging_closed_at"]
    charging = _seconds(approved, charging_closed or now)
    return {
        "locked_at": locked.isoformat(),
        "planned_at": None if planned is None else planned.isoformat(),
        "approved_at": None if approved is None else approved.isoformat(),
        "charging_closed_at": None if charging_closed is None else charging_closed.isoformat(),
        "closed_at": now.isoformat(),
        "planning_seconds": _seconds(locked, planned),
        "approval_seconds": _seconds(planned, approved),
        "charging_seconds": charging,
        "retrying_seconds": _seconds(charging_closed, now),
        "held_seconds": round(sum(hold.seconds for hold in holds), 3),
        "all_seconds": _seconds(locked, now),
        "estimated_charging_seconds": planning[-1].get("charge_seconds") if planning else None,
        "limit_seconds": limit_seconds,
        "within_limit": None if limit_seconds is None or charging is None else charging <= limit_seconds,
    }


def _waiting(facts: CloseFacts) -> dict[str, dict[str, Any]]:
    """Return what the run waits for: by kind, how many lines, and until when at most."""
    return {
        row["kind"]: {
            "lines": row["lines"],
            "next": row["due_at"].isoformat(),
            "until": row["ends_at"].isoformat(),
        }
        for row in facts.follow_ups
        if row["outcome"] is None
    }


def _waited(facts: CloseFacts) -> dict[str, dict[str, int]]:
    """Return what came of what the run has waited for: by kind and outcome, how many times."""
    waited: dict[str, dict[str, int]] = {}
    for row in facts.follow_ups:
        if row["outcome"] is not None:
            waited.setdefault(row["kind"], {})[row["outcome"]] = row["lines"]
    return waited


def _seconds(since: datetime | None, until: datetime | None) -> float | None:
    return None if since is None or until is None else round((until - since).total_seconds(), 3)
