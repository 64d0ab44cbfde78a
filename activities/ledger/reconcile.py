"""A reconciliation's own books: what it is about, how far it has come, what it still has to look at."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from activities.ledger import sql
from activities.ledger.audit import AuditedLine
from activities.ledger.database import Pool
from activities.ledger.drift import Reconciliation
from activities.ledger.rows import instant
from workflows.domain.drift import RepairState
from workflows.domain.errors import RefusedToStart
from workflows.reconcile_contracts import ReconcileRequest

_SQL = sql.load("reconcile.sql")
_DRIFT_SQL = sql.load("drift.sql")
_LINE_FIELDS = tuple(AuditedLine.__dataclass_fields__)
_FORGOTTEN = ("forget_suspects", "forget_seen", "forget_slices", "forget_refunds")


@dataclass(frozen=True, slots=True)
class ScopedLine:
    """What the ledger says about a charge, whether its run is closed, and when anything was first sent."""

    line: AuditedLine
    closed: bool
    first_intended_at: datetime | None


@dataclass(frozen=True, slots=True)
class ScanSpan:
    """One slice of the scan: whole seconds, both bounds included; no `until` means until now."""

    since_epoch_seconds: int
    until_epoch_seconds: int | None
    is_done: bool
    how: str


@dataclass(frozen=True, slots=True)
class Suspect:
    """A charge to look at, and why. The ledger may have none of this identity."""

    charge_id: str
    customer: str | None
    why: str
    tries: int


@dataclass(frozen=True, slots=True)
class Sums:
    """What a reconciliation came to, but for its differences by kind."""

    charges: int
    suspects: int
    customers: int
    settled: int
    in_flight: int
    differing: int
    unread: int


class ReconcileLedger:
    """The tables `reconciliation...`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def open(self, request: ReconcileRequest, owner: str) -> Reconciliation:
        """Keep a reconciliation, once for its owner, and return it.

        Raises:
            RefusedToStart: There is no such run.
        """
        if request.run_id is not None:
            known = await self._pool.fetchval(_SQL["has_run"], request.run_id, request.account)
            if not known:
                raise RefusedToStart(f"the ledger has no run {request.run_id!r} of {request.account}")
        await self._pool.execute(
            _SQL["open_reconciliation"],
            request.workflow_id,
            owner,
            request.account,
            request.run_id,
            instant(request.since_epoch_seconds),
            instant(request.until_epoch_seconds),
            request.repair,
            request.decided_by.who,
            request.decided_by.reason,
        )
        [row] = await self._pool.fetch(_SQL["reconciliation_of_owner"], owner)
        return Reconciliation(**dict(row))

    async def read(self, reconciliation_id: str) -> Reconciliation:
        """Return a reconciliation. Raises RefusedToStart where there is none of that id."""
        row = await self._pool.fetchrow(_SQL["read_reconciliation"], reconciliation_id)
        if row is None:
            raise RefusedToStart(f"there is no reconciliation {reconciliation_id!r}")
        return Reconciliation(**dict(row))

    async def count_scope(self, reconciliation_id: str) -> tuple[int, int]:
        """Return how many charges it is about, and of how many customers."""
        [row] = await self._pool.fetch(_SQL["count_scope"], reconciliation_id)
        return row["charges"], row["customers"]

    async def choose_way(self, reconciliation_id: str, how: str) -> None:
        """Say how it is gone about: the first word counts, but for falling back to `customers`."""
        await self._pool.execute(_SQL["choose_way"], reconciliation_id, how)

    async def cut_slices(
        self, reconciliation_id: str, *, creates_per_slice: int, margin_seconds: float
    ) -> int:
        """Cut the scan into slices, once, and return how many there are."""
        await self._pool.execute(
            _SQL["cut_slices"], reconciliation_id, creates_per_slice, float(margin_seconds)
        )
        return await self._pool.fetchval(_SQL["count_slices"], reconciliation_id)  # type: ignore[no-any-return]

    async def read_slice(self, reconciliation_id: str, slice_no: int) -> ScanSpan:
        """Return one slice, and how the reconciliation is gone about by now."""
        [row] = await self._pool.fetch(_SQL["read_slice"], reconciliation_id, slice_no)
        until = row["created_until"]
        return ScanSpan(
            since_epoch_seconds=int(row["created_from"].timestamp()),
            until_epoch_seconds=None if until is None else int(until.timestamp()),
            is_done=row["done_at"] is not None,
            how=row["how"],
        )

    async def finish_slice(self, reconciliation_id: str, slice_no: int) -> None:
        """Say that a slice was read to its end."""
        await self._pool.execute(_SQL["finish_slice"], reconciliation_id, slice_no)

    async def count_requests(self, reconciliation_id: str, purpose: str, requests: int) -> int:
        """Add to what Stripe was asked for a purpose; return how often it was asked for that by now."""
        return await self._pool.fetchval(  # type: ignore[no-any-return]
            _SQL["count_requests"], reconciliation_id, purpose, requests
        )

    async def note_gap(self, reconciliation_id: str, what: str, why: str) -> None:
        """Say what could not be read, and why."""
        await self._pool.execute(_SQL["note_gap"], reconciliation_id, what, why, True)

    async def remark(self, reconciliation_id: str, what: str, why: str) -> None:
        """Say what people should know, and what leaves nothing unread."""
        await self._pool.execute(_SQL["note_gap"], reconciliation_id, what, why, False)

    async def lines_of(self, account: str, charge_ids: Sequence[str]) -> dict[str, ScopedLine]:
        """Return what the ledger says about these charges of an account, in whatever run."""
        rows = await self._pool.fetch(_SQL["lines_of"], account, list(charge_ids))
        return {
            row["charge_id"]: ScopedLine(
                AuditedLine(**{name: row[name] for name in _LINE_FIELDS}),
                row["closed"],
                row["first_intended_at"],
            )
            for row in rows
        }

    async def mark_seen(self, reconciliation_id: str, charge_ids: Sequence[str]) -> None:
        """Say that these agree with what Stripe shows."""
        if charge_ids:
            await self._pool.execute(_SQL["mark_seen"], reconciliation_id, list(charge_ids))

    async def mark_suspect(
        self, reconciliation_id: str, suspects: Mapping[str, str | None], why: str
    ) -> None:
        """Say that these have to be looked at: charges, each with the customer that Stripe names."""
        if suspects:
            await self._pool.execute(
                _SQL["mark_suspect"], reconciliation_id, list(suspects), list(suspects.values()), why
            )

    async def mark_unseen(self, reconciliation_id: str, *, everything: bool) -> None:
        """Suspect what no page has shown, what is in flight, and what was refunded unknown to the ledger."""
        await self._pool.execute(_SQL["mark_unseen"], reconciliation_id, everything)

    async def keep_refunds(self, reconciliation_id: str, returned: Mapping[str, int]) -> None:
        """Keep what went back, by PaymentIntent."""
        if returned:
            await self._pool.execute(
                _SQL["keep_refunds"], reconciliation_id, list(returned), list(returned.values())
            )

    async def refunds_of(self, reconciliation_id: str, payment_intents: Sequence[str]) -> dict[str, int]:
        """Return what went back of these PaymentIntents, as it was listed."""
        rows = await self._pool.fetch(_SQL["refunds_of"], reconciliation_id, list(payment_intents))
        return {row["payment_intent"]: row["returned_minor"] for row in rows}

    async def next_suspects(self, reconciliation_id: str, *, limit: int) -> list[Suspect]:
        """Return up to `limit` suspects, those that were tried least first."""
        rows = await self._pool.fetch(_SQL["next_suspects"], reconciliation_id, limit)
        return [Suspect(**dict(row)) for row in rows]

    async def count_suspects(self, reconciliation_id: str) -> int:
        """Return how many are still to be looked at."""
        return await self._pool.fetchval(_SQL["count_suspects"], reconciliation_id)  # type: ignore[no-any-return]

    async def end_suspects(self, reconciliation_id: str, ends: Mapping[str, tuple[str, bool]]) -> None:
        """Say that suspects have been looked at: each with its outcome, and whether it was settled."""
        outcomes = [outcome for outcome, _ in ends.values()]
        settled = [was_settled for _, was_settled in ends.values()]
        await self._pool.execute(_SQL["end_suspects"], reconciliation_id, list(ends), outcomes, settled)

    async def put_suspects_off(self, reconciliation_id: str, charge_ids: Sequence[str]) -> None:
        """Say that suspects could not be looked at this time."""
        await self._pool.execute(_SQL["put_suspects_off"], reconciliation_id, list(charge_ids))

    async def sum_up(self, reconciliation_id: str) -> Sums:
        """Return what it came to so far."""
        [row] = await self._pool.fetch(_SQL["sum_up"], reconciliation_id)
        return Sums(**dict(row))

    async def requests_of(self, reconciliation_id: str) -> dict[str, int]:
        """Return how often Stripe was asked, by purpose."""
        rows = await self._pool.fetch(_SQL["requests_of"], reconciliation_id)
        return {row["purpose"]: row["requests"] for row in rows}

    async def gaps_of(self, reconciliation_id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return what could not be read, and what else is to be said."""
        rows = await self._pool.fetch(_SQL["gaps_of"], reconciliation_id)
        said = [(f"{row['what']}: {row['why']}", row["is_gap"]) for row in rows]
        gaps = tuple(text for text, is_gap in said if is_gap)
        return gaps, tuple(text for text, is_gap in said if not is_gap)

    async def count_drift(self, reconciliation_id: str) -> dict[RepairState, Counter[str]]:
        """Return how many differences it has found, by where they stand and by kind."""
        counted: dict[RepairState, Counter[str]] = {state: Counter() for state in RepairState}
        for row in await self._pool.fetch(_DRIFT_SQL["count_drift"], reconciliation_id):
            counted[RepairState(row["repair_state"])][row["kind"]] += row["found"]
        return counted

    async def end_gone(self, reconciliation_id: str) -> None:
        """End what earlier reconciliations have found in this scope, and this one has not."""
        await self._pool.execute(_DRIFT_SQL["end_gone"], reconciliation_id)

    async def close(self, reconciliation_id: str, report: Mapping[str, Any]) -> None:
        """Freeze the report, and drop what was only needed on the way."""
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(_SQL["close_reconciliation"], reconciliation_id, dict(report))
            for block in _FORGOTTEN:
                await connection.execute(_SQL[block], reconciliation_id)
