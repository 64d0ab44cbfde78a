"""What the inbox has of Stripe's events, compared with what it should have."""

from collections.abc import Mapping, Sequence

from activities.ledger import sql
from activities.ledger.database import Pool

_SQL = sql.load("missed_events.sql")


class MissedEventsLedger:
    """The table `inbox_events`, as whoever looks for gaps in it reads it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def types_received(self, account: str) -> frozenset[str]:
        """Return of which types the account's inbox has ever had an event."""
        return frozenset(row["type"] for row in await self._pool.fetch(_SQL["types_received"], account))

    async def missing(
        self, charges: Mapping[str, str], *, account: str, run_id: str | None
    ) -> frozenset[str]:
        """Return which events, each with its charge's id, are of the scope and not in the inbox."""
        if not charges:
            return frozenset()
        rows = await self._pool.fetch(
            _SQL["missing_events"], list(charges), list(charges.values()), account, run_id
        )
        return frozenset(row["event_id"] for row in rows)

    async def charges_of(self, account: str, payment_intents: Sequence[str]) -> dict[str, str]:
        """Return the charge of each PaymentIntent that the ledger knows. Reads the whole account."""
        if not payment_intents:
            return {}
        rows = await self._pool.fetch(_SQL["charges_by_payment_intent"], account, list(payment_intents))
        return {row["payment_intent"]: row["charge_id"] for row in rows}
