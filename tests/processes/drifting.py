"""Differences to render, some of them with names that somebody chose to do harm."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from worker.drift_report.findings import DriftReport, Finding, report_of
from worker.drift_report.repair_commands import Asked, command_of
from workflows.domain.drift import DriftKind, Repair, RepairState

AT = datetime(2031, 3, 4, 12, 0, tzinfo=UTC)
RUN = "billing-run/acct_1/2031-03"
HOSTILE = "<script>alert('x')</script>\x1b[31m\u202egnp.exe\"><img src=http://a.example/x onerror=y>"
FORMULA = '=HYPERLINK("http://a.example","see")'


@dataclass(frozen=True)
class Row:
    """A difference as the ledger keeps it."""

    kind: str
    subject: str
    repair: str
    account: str = "acct_1"
    charge_id: str | None = "0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d"
    run_id: str | None = RUN
    customer: str | None = "cus_1"
    line: str | None = "base"
    payment_intents: tuple[str, ...] = ("pi_1", "pi_2")
    amount_minor: int | None = None
    currency: str | None = None
    ledger_says: str = "succeeded 4200 usd"
    stripe_says: str = "pi_2 succeeded 4200 usd"
    repair_state: str = "proposed"
    repair_detail: str | None = None
    occurred_at: datetime | None = None
    first_seen_at: datetime = AT - timedelta(days=2)
    last_seen_at: datetime = AT
    ended_at: datetime | None = None
    drift_id: int = 0
    first_reconciliation: str = "reconcile/1"
    last_reconciliation: str = "reconcile/1"


@dataclass(frozen=True)
class Kept:
    """A reconciliation as the ledger keeps it."""

    reconciliation_id: str = f"reconcile/{RUN}/1"
    workflow_id: str = f"reconcile/{RUN}"
    owner: str = "owner"
    account: str = "acct_1"
    run_id: str | None = RUN
    since: datetime = AT - timedelta(days=3)
    until: datetime = AT
    repair: bool = False
    who: str = "somebody@desk"
    reason: str = "after an incident"
    phase: str = "closed"
    how: str | None = "scan"
    opened_at: datetime = AT - timedelta(minutes=5)
    closed_at: datetime | None = AT
    report: dict[str, Any] | None = field(
        default_factory=lambda: {
            "how": "scan",
            "charges": 2_000,
            "differing": 4,
            "events_looked_for": False,
            "settled": 3,
            "in_flight": 0,
            "found": {"duplicate": 1, "amount": 1},
            "repaired": {},
            "requests": {"pages": 21, "looks": 4, "events": 60},
            "bound": 30,
            "incomplete": [],
            "remarks": ["older events: the span begins before what Stripe lists"],
        }
    )


DUPLICATE = Row(
    DriftKind.DUPLICATE, "pi_2", Repair.REFUND, amount_minor=4_200, currency="usd",
    first_seen_at=AT - timedelta(days=3, hours=4),
)  # fmt: skip
HOSTILE_ROW = Row(
    DriftKind.AMOUNT, FORMULA, Repair.RESTORE, customer=HOSTILE, line=FORMULA, ledger_says=HOSTILE,
    stripe_says=FORMULA, repair_state=RepairState.FAILED, repair_detail=HOSTILE,
)  # fmt: skip
REPAIRED = Row(DriftKind.STATUS, "0a1b", Repair.MERGE, repair_state=RepairState.REPAIRED, ended_at=AT)


def drifting(*rows: Row, kept: Kept | None = None) -> DriftReport:
    """Return a report of these differences."""
    return report_of(kept or Kept(), rows, at=AT)  # type: ignore[arg-type]  # as the ledger's own rows


def command(row: Row, *, run_id: str | None = RUN) -> str:
    """Return what somebody would type to end a difference, found by a reconciliation of this scope."""
    return command_of(row, Asked(account="acct_1", run_id=run_id, since=AT - timedelta(days=3)))


def finding(row: Row) -> Finding:
    """Return one difference as a report has it."""
    return drifting(row).findings[0]
