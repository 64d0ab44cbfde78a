"""What differed, since when, and what was done about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from activities.ledger import sql
from activities.ledger.database import Pool
from activities.ledger.rows import columns, instant
from workflows.domain.drift import Drift, DriftKind, RepairState
from workflows.domain.errors import invariant

_SQL = sql.load("drift.sql")
_RECONCILE_SQL = sql.load("reconcile.sql")


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """One reconciliation. `report` is the `ReconcileReport` of its contracts, frozen at the close."""

    reconciliation_id: str
    workflow_id: str
    owner: str
    account: str
    run_id: str | None
    since: datetime
    until: datetime
    repair: bool
    who: str
    reason: str
    phase: str
    how: str | None
    opened_at: datetime
    closed_at: datetime | None
    report: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class DriftRow:
    """One difference as the ledger keeps it. Amounts in minor units."""

    drift_id: int
    account: str
    kind: str
    subject: str
    charge_id: str | None
    run_id: str | None
    customer: str | None
    line: str | None
    payment_intents: list[str]
    amount_minor: int | None
    currency: str | None
    ledger_says: str
    stripe_says: str
    repair: str
    repair_state: str
    repair_detail: str | None
    occurred_at: datetime | None
    first_seen_at: datetime
    last_seen_at: datetime
    ended_at: datetime | None
    first_reconciliation: str
    last_reconciliation: str


class DriftLedger:
    """The table `drift`, and reconciliations as people look at them."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def newest(self, limit: int) -> list[Reconciliation]:
        """Return up to `limit` reconciliations, newest first."""
        rows = await self._pool.fetch(_RECONCILE_SQL["newest_reconciliations"], limit)
        return [Reconciliation(**dict(row)) for row in rows]

    async def reconciliation(self, reconciliation_id: str) -> Reconciliation | None:
        """Return one reconciliation, or None where there is none of that id."""
        row = await self._pool.fetchrow(_RECONCILE_SQL["read_reconciliation"], reconciliation_id)
        return None if row is None else Reconciliation(**dict(row))

    async def findings(
        self,
        *,
        account: str | None = None,
        run_id: str | None = None,
        open_only: bool = False,
        reconciliation_id: str | None = None,
    ) -> list[DriftRow]:
        """Return differences, newest first; those of a reconciliation are the ones that it has seen last."""
        rows = await self._pool.fetch(_SQL["find_drift"], account, run_id, open_only, reconciliation_id)
        return [DriftRow(**dict(row)) for row in rows]

    async def record(self, reconciliation_id: str, account: str, drifts: Sequence[Drift]) -> None:
        """Keep differences: one that is known keeps the moment at which it was first seen."""
        known = {(drift.kind, drift.subject): drift for drift in drifts}
        if known:
            rows = columns([_row_of(drift) for drift in known.values()])
            await self._pool.execute(_SQL["record_drift"], account, reconciliation_id, *rows)

    async def end(self, account: str, kind: DriftKind, subject: str, state: RepairState, detail: str) -> None:
        """Say what became of a repair: whether it ended the difference, and if not, why."""
        invariant(state in {RepairState.REPAIRED, RepairState.FAILED}, "a repair ends in one of two ways")
        await self._pool.execute(_SQL["end_drift"], account, kind, subject, state, detail)


def _row_of(drift: Drift) -> tuple[Any, ...]:
    return (
        drift.kind,
        drift.subject,
        drift.charge_id,
        drift.run_id,
        drift.customer,
        drift.line,
        ",".join(drift.payment_intents),
        drift.amount_minor,
        drift.currency,
        drift.ledger_says,
        drift.stripe_says,
        drift.repair,
        instant(drift.occurred_epoch_seconds),
    )
