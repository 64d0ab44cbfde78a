"""Restores of the ledger: noticed by the database, cleared by people once Stripe has been asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from activities.ledger import sql
from activities.ledger.database import Pool
from activities.ledger.rows import charge_from
from workflows.domain.charge import Charge

_SQL = sql.load("restores.sql")


@dataclass(frozen=True, slots=True)
class Restore:
    """A restore that is not cleared: nothing is sent."""

    restore_id: int
    found_at: datetime
    why: str
    who: str
    now: datetime


class RestoreLedger:
    """The table `ledger_restores`, and what has to be looked at before one is cleared."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def open(self) -> Restore | None:
        """Return the restore that is not cleared, None where there is none."""
        row = await self._pool.fetchrow(_SQL["open_restore"])
        return None if row is None else Restore(**dict(row))

    async def declare(self, *, who: str, why: str) -> bool:
        """Say that the ledger was restored; return whether nobody had yet."""
        return await self._pool.fetchval(_SQL["declare_restore"], who, why) is not None

    async def clear(self, restore: Restore, *, who: str, why: str, counts: Mapping[str, Any]) -> bool:
        """Let sending go on; return whether this call did."""
        row = await self._pool.fetchrow(_SQL["clear_restore"], restore.restore_id, who, why, dict(counts))
        return row is not None

    async def open_runs(self) -> list[tuple[str, str]]:
        """Return the id and account of each run that has not ended."""
        rows = await self._pool.fetch(_SQL["runs_to_look_at"])
        return [(row["run_id"], row["account"]) for row in rows]

    async def open_charges(self, account: str, charge_ids: Sequence[str]) -> dict[str, Charge]:
        """Return those of these charges for which something may still be sent."""
        rows = await self._pool.fetch(_SQL["open_charges_of"], account, list(charge_ids))
        return {row["charge_id"]: charge_from(row) for row in rows}

    async def count_open(self, account: str) -> int:
        """Return for how many charges of an account something may still be sent."""
        return await self._pool.fetchval(_SQL["count_open_charges"], account)  # type: ignore[no-any-return]
