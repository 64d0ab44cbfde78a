"""What a drift report says: a reconciliation and its differences, as values that every form of it shows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from worker.drift_report.repair_commands import Asked, command_of
from worker.money_shown import show_money
from workflows.domain.drift import OPEN_STATES, SEVERITY, DriftKind, Repair, RepairState

if TYPE_CHECKING:
    from activities.ledger.drift import DriftRow, Reconciliation

MEANINGS = {
    DriftKind.DUPLICATE: "the customer has paid, or will pay, more than once",
    DriftKind.MISSING_AT_STRIPE: "the ledger says it is paid, and Stripe has no such payment",
    DriftKind.MISSING_IN_LEDGER: "Stripe has a payment that names a charge which this ledger does not have",
    DriftKind.STATUS: "ledger and Stripe say different things about whether it is paid",
    DriftKind.AMOUNT: "another amount was paid than the ledger says",
    DriftKind.CURRENCY: "it was paid in another currency than the ledger says",
    DriftKind.CUSTOMER: "another customer has paid than the ledger says",
    DriftKind.REFUND: "Stripe has refunded another amount than the ledger knows of",
    DriftKind.ORPHAN: "an unconfirmed PaymentIntent that is not its charge's own: no money, and nobody's",
    DriftKind.EVENT_GAP: "an event of Stripe's that never came in; Stripe lists events for 30 days",
}
REPAIRS = {
    Repair.MERGE: "let the ledger record what Stripe says",
    Repair.RESTORE: "give the ledger back what was frozen with its key",
    Repair.CANCEL: "cancel the PaymentIntent, which nobody has confirmed",
    Repair.KEEP_EVENT: "put the event into the inbox",
    Repair.SAVE_REFUNDS: "record in the ledger what Stripe has refunded",
    Repair.REFUND: "it moves money, so somebody approves it by naming PaymentIntent and amount",
    Repair.RESOLVE: "people decide",
    Repair.NONE: "nothing that this program could do is right: people look at it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One difference. Amounts in minor units; `age_seconds` since it was first seen, by the ledger's clock.

    `command` is what somebody would type to end it, "" where no command does.
    """

    kind: DriftKind
    subject: str
    account: str
    ledger_says: str
    stripe_says: str
    repair: Repair
    repair_state: RepairState
    first_seen_at: datetime
    last_seen_at: datetime
    age_seconds: float
    charge_id: str | None = None
    run_id: str | None = None
    customer: str | None = None
    line: str | None = None
    payment_intents: tuple[str, ...] = ()
    amount_minor: int | None = None
    currency: str | None = None
    repair_detail: str | None = None
    occurred_at: datetime | None = None
    ended_at: datetime | None = None
    command: str = ""

    @property
    def is_open(self) -> bool:
        """Whether somebody or something still has to end it."""
        return self.repair_state in OPEN_STATES

    @property
    def where(self) -> str:
        """What it is about, in a few words."""
        named = f"{self.customer}/{self.line}" if self.customer and self.line else self.customer
        words = (named, self.subject, None if self.charge_id == self.subject else self.charge_id)
        return " ".join(word for word in words if word)

    @property
    def amount(self) -> str:
        """What a repair would move, as people read it; "" where it moves nothing."""
        return show_money(self.amount_minor, self.currency)

    @property
    def standing(self) -> str:
        """Where its repair stands, with the reason where there is one."""
        return f"{self.repair_state}: {self.repair_detail}" if self.repair_detail else str(self.repair_state)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values, with what kind and repair mean."""
        return {
            **asdict(self),
            "payment_intents": list(self.payment_intents),
            "meaning": MEANINGS[self.kind],
            "repair_means": REPAIRS[self.repair],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftReport:
    """One reconciliation with its differences, the worst kinds first; `at` is the ledger's time now.

    `totals` is the frozen report (workflows.reconcile_contracts.ReconcileReport), None while it is under way.
    """

    reconciliation_id: str
    account: str
    run_id: str | None
    since: datetime
    until: datetime
    repair: bool
    who: str
    reason: str
    phase: str
    opened_at: datetime
    closed_at: datetime | None
    totals: Mapping[str, Any] | None
    findings: tuple[Finding, ...]
    at: datetime

    @property
    def open(self) -> tuple[Finding, ...]:
        """The differences that are not repaired and were seen last time."""
        return tuple(finding for finding in self.findings if finding.is_open)

    @property
    def incomplete(self) -> tuple[str, ...]:
        """What could not be read: with anything in it, the absence of a difference proves nothing."""
        return tuple((self.totals or {}).get("incomplete", ()))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What whoever reads the report should know, though it leaves nothing unread."""
        return tuple((self.totals or {}).get("remarks", ()))

    @property
    def verdict(self) -> str:
        """Return `under way`, `failed`, `drift`, `incomplete` or `clean`."""
        if self.phase == "failed":
            return "failed"
        if self.open:
            return "drift"
        if self.totals is None:
            return "under way"
        return "incomplete" if self.incomplete else "clean"

    @property
    def subject(self) -> str:
        """What was compared, in a few words."""
        span = f"from {self.since:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M}"
        return self.run_id or f"{self.account}, {span}"

    @property
    def by_kind(self) -> list[tuple[DriftKind, tuple[Finding, ...]]]:
        """Its differences by kind, the worst first; kinds without any are left out."""
        return [
            (kind, found)
            for kind in DriftKind
            if (found := tuple(one for one in self.findings if one.kind is kind))
        ]

    @property
    def requests(self) -> int:
        """How many requests pages and looks took, which `bound` speaks of."""
        asked: Mapping[str, int] = (self.totals or {}).get("requests", {})
        return sum(asked.get(purpose, 0) for purpose in ("pages", "looks"))

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "reconciliation": self.reconciliation_id,
            "verdict": self.verdict,
            "account": self.account,
            "run": self.run_id,
            "since": self.since,
            "until": self.until,
            "repair": self.repair,
            "who": self.who,
            "reason": self.reason,
            "phase": self.phase,
            "opened_at": self.opened_at,
            "closed_at": self.closed_at,
            "at": self.at,
            "open": len(self.open),
            "report": None if self.totals is None else dict(self.totals),
            "drift": [finding.as_json() for finding in self.findings],
        }


def report_of(reconciliation: "Reconciliation", rows: "Sequence[DriftRow]", *, at: datetime) -> DriftReport:
    """Return what the ledger keeps of a reconciliation and its differences as a report, as of `at`."""
    asked = Asked(account=reconciliation.account, run_id=reconciliation.run_id, since=reconciliation.since)
    findings = sorted((_finding(row, asked, at) for row in rows), key=_worst_first)
    return DriftReport(
        reconciliation_id=reconciliation.reconciliation_id,
        account=reconciliation.account,
        run_id=reconciliation.run_id,
        since=reconciliation.since,
        until=reconciliation.until,
        repair=reconciliation.repair,
        who=reconciliation.who,
        reason=reconciliation.reason,
        phase=reconciliation.phase,
        opened_at=reconciliation.opened_at,
        closed_at=reconciliation.closed_at,
        totals=reconciliation.report,
        findings=tuple(findings),
        at=at,
    )


def _finding(row: "DriftRow", asked: Asked, at: datetime) -> Finding:
    kind, repair, state = DriftKind(row.kind), Repair(row.repair), RepairState(row.repair_state)
    is_open = state in OPEN_STATES
    return Finding(
        kind=kind,
        subject=row.subject,
        account=row.account,
        ledger_says=row.ledger_says,
        stripe_says=row.stripe_says,
        repair=repair,
        repair_state=state,
        first_seen_at=row.first_seen_at,
        last_seen_at=row.last_seen_at,
        age_seconds=max(0.0, ((row.ended_at or at) - row.first_seen_at).total_seconds()),
        charge_id=row.charge_id,
        run_id=row.run_id,
        customer=row.customer,
        line=row.line,
        payment_intents=tuple(row.payment_intents),
        amount_minor=row.amount_minor,
        currency=row.currency,
        repair_detail=row.repair_detail,
        occurred_at=row.occurred_at,
        ended_at=row.ended_at,
        command=command_of(row, asked) if is_open else "",
    )


def _worst_first(finding: Finding) -> tuple[bool, int, datetime, str]:
    return (not finding.is_open, SEVERITY[finding.kind], finding.first_seen_at, finding.subject)
