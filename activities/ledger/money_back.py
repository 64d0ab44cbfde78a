"""Refunds and disputes beside their charge, and what a look found that people must see."""

from collections.abc import Sequence
from typing import Any

from activities.ledger import sql
from activities.ledger.database import Pool
from activities.ledger.rows import columns, instant
from workflows.domain.charge import Charge
from workflows.domain.money_back import Dispute, Refund

_SQL = sql.load("inbox.sql")


class MoneyBackLedger:
    """The tables `refunds` and `disputes`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def next_look(self) -> int:
        """Return the number of a look at Stripe that is about to begin."""
        return await self._pool.fetchval(_SQL["next_look"])  # type: ignore[no-any-return]

    async def save_refunds(self, charge: Charge, refunds: Sequence[Refund], *, look: int) -> int:
        """Keep what a look found, unless a later look has been here; return how many statuses changed."""
        return await self._save("save_refunds", charge, [_refund_row(one) for one in refunds], refunds, look)

    async def save_disputes(self, charge: Charge, disputes: Sequence[Dispute], *, look: int) -> int:
        """Keep what a look found, unless a later look has been here; return how many statuses changed."""
        return await self._save(
            "save_disputes", charge, [_dispute_row(one) for one in disputes], disputes, look
        )

    async def alarm_once(self, charge: Charge, decision: str, reason: str, **evidence: Any) -> None:
        """Record what people must see about a charge, once however often it is found."""
        await self._pool.execute(_SQL["note_once"], charge.charge_id, decision, reason, evidence)

    async def of_charge(self, charge_id: str) -> list[dict[str, Any]]:
        """Return what went back of a charge, or is being claimed back, oldest first."""
        return [dict(row) for row in await self._pool.fetch(_SQL["money_back_of_charge"], charge_id)]

    async def _save(
        self,
        block: str,
        charge: Charge,
        rows: list[tuple[Any, ...]],
        found: Sequence[Refund | Dispute],
        look: int,
    ) -> int:
        if not rows:
            return 0
        whose = (charge.charge_id, charge.account, found[0].payment_intent)
        return await self._pool.fetchval(_SQL[block], *whose, *columns(rows), look)  # type: ignore[no-any-return]


def _refund_row(refund: Refund) -> tuple[Any, ...]:
    return (
        refund.refund_id,
        refund.amount_minor,
        refund.currency,
        refund.status,
        refund.reason,
        refund.failure_reason,
        instant(refund.created_epoch_seconds),
    )


def _dispute_row(dispute: Dispute) -> tuple[Any, ...]:
    return (
        dispute.dispute_id,
        dispute.amount_minor,
        dispute.currency,
        dispute.status,
        dispute.reason,
        instant(dispute.due_epoch_seconds),
        instant(dispute.created_epoch_seconds),
    )
