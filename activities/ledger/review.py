"""Charges in review, and what a person's decision about one writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from activities.ledger import sql
from activities.ledger.database import Pool
from activities.ledger.rows import Row, charge_from
from workflows.domain.charge import Charge
from workflows.domain.errors import StaleWrite
from workflows.domain.window import WINDOW_SECONDS

_SQL = sql.load("review.sql")
_NOTE = sql.load("charges.sql")["note_decision"]


@dataclass(frozen=True, slots=True)
class ReviewHistory:
    """When anything of a charge was first sent, and whether anything of it may still run. Epoch seconds."""

    may_still_run: bool
    first_intended_epoch_seconds: float
    now_epoch_seconds: float


class ReviewLedger:
    """What deciding about charges in review reads and writes."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def in_review(
        self, *, account: str | None = None, run_id: str | None = None, limit: int
    ) -> list[dict[str, Any]]:
        """Return up to `limit` charges in review, longest there first, each with its newest alarm."""
        rows = await self._pool.fetch(_SQL["charges_in_review"], account, run_id, limit)
        return [dict(row) for row in rows]

    async def history(self, charge_id: str) -> ReviewHistory:
        """Return what is known of a charge's requests."""
        [row] = await self._pool.fetch(_SQL["review_history"], charge_id, WINDOW_SECONDS)
        now = row["now"].timestamp()
        first = row["first_intended_at"]
        return ReviewHistory(row["may_still_run"], now if first is None else first.timestamp(), now)

    async def intents_named_for(self, charge_id: str) -> set[str]:
        """Return the ids of PaymentIntents that the ledger has heard of for a charge, of any customer."""
        rows = await self._pool.fetch(_SQL["intents_named_for"], charge_id)
        return {row["payment_intent"] for row in rows}

    async def claim(self, charge: Charge) -> Charge:
        """Take a charge in review under a new fence. Raises StaleWrite if it has moved on."""
        row = await self._pool.fetchrow(
            _SQL["claim_in_review"],
            charge.charge_id,
            charge.create_version,
            charge.confirm_version,
            charge.payment_intent,
        )
        return charge_from(_present(row, charge))

    async def take_paid(self, charge: Charge, payment_intent: str, evidence: Mapping[str, Any]) -> Charge:
        """Let the PaymentIntent that was paid be a claimed charge's own, where its own was seen canceled.

        Raises:
            StaleWrite: The charge has moved on.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            if charge.payment_intent is not None:
                seen = {**evidence, "payment_intent": charge.payment_intent, "state": "canceled"}
                reason = f"Stripe shows {charge.payment_intent} canceled, and {payment_intent} paid"
                await connection.execute(_NOTE, charge.charge_id, "shown_canceled", reason, False, seen)
            row = await connection.fetchrow(
                _SQL["take_paid_intent"],
                charge.charge_id,
                charge.fence,
                charge.payment_intent,
                payment_intent,
            )
            return charge_from(_present(row, charge))


def _present(row: Row | None, charge: Charge) -> Row:
    if row is None:
        raise StaleWrite(f"charge {charge.charge_id} has moved on: look at it again")
    return row
