"""Buckets of the rate limits, by the database's clock: what all worker processes share (migration 0003)."""

from dataclasses import dataclass

import asyncpg

from activities.ledger import sql
from activities.ledger.database import Pool
from workflows.domain.errors import InvariantViolation, NothingWasSent

STATEMENT_SECONDS = 5.0  # longer than any lock is held: a connection that takes it is dead

_SQL = sql.load("limits.sql")
_PASSING = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.ReadOnlySQLTransactionError,
)


@dataclass(frozen=True, slots=True)
class Lease:
    """So many moments at which a request may leave, the first that far from the answer; `slots` may be 0.

    `share` is what is left of the configured rate after 429s, above 0 and at most 1.
    """

    slots: int
    first_in_seconds: float
    spacing_seconds: float
    share: float


class LimitLedger:
    """Leases slots and slows buckets down."""

    def __init__(self, pool: Pool, *, record_grants: bool = False) -> None:
        """Use `pool`; `record_grants` also keeps every slot in `rate_grants`, for proofs."""
        self._pool = pool
        self._record_grants = record_grants

    async def lease(self, account: str, endpoint: str, *, rate_per_second: float, wanted: int) -> Lease:
        """Lease at most `wanted` slots of a bucket.

        Raises:
            NothingWasSent: The database did not answer. If it leased slots all the same, nobody uses them.
        """
        row = await self._ask("lease_slots", account, endpoint, rate_per_second, wanted, self._record_grants)
        return Lease(
            slots=row["slots"],
            first_in_seconds=row["first_in_seconds"],
            spacing_seconds=row["spacing_seconds"],
            share=row["share_now"],
        )

    async def slow_down(self, account: str, endpoint: str, *, pause_seconds: float) -> None:
        """Pause a bucket from now on, and let it go on more slowly.

        Raises:
            NothingWasSent: The database did not answer.
        """
        await self._ask("slow_down_slots", account, endpoint, pause_seconds)

    async def _ask(self, block: str, *arguments: object) -> asyncpg.Record:
        try:
            row = await self._pool.fetchrow(_SQL[block], *arguments, timeout=STATEMENT_SECONDS)
        except _PASSING as error:
            raise NothingWasSent(f"the limits of {arguments[0]} can't be asked: {error}") from error
        if row is None:
            raise InvariantViolation("a function returns one row")
        return row
