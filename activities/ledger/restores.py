"""Restores of the ledger: noticed by the database, cleared by people once Stripe has been asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from activities.ledger import sql
from activities.ledger.charges import FirstSend
from activities.ledger.database import Pool
from activities.ledger.rows import charge_from, instant
from workflows.domain.charge import Charge
from workflows.domain.errors import StaleWrite

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

    async def clear(
        self, restore: Restore, *, who: str, why: str, counts: Mapping[str, Any], accounts: Sequence[str]
    ) -> bool:
        """Let sending go on, with a note on each charge that may still be sent for; return whether it did.

        `accounts` are those that Stripe was asked about. It does not where a charge of another one is open,
        or where somebody else has cleared the restore.
        """
        told = f"the ledger was restored: Stripe was asked, and nothing else of it can be paid ({who})"
        arguments = (restore.restore_id, who, why, dict(counts), list(accounts), told)
        return await self._pool.fetchrow(_SQL["clear_restore"], *arguments) is not None

    async def open_runs(self) -> list[tuple[str, str]]:
        """Return the id and account of each run that has not ended."""
        rows = await self._pool.fetch(_SQL["runs_to_look_at"])
        return [(row["run_id"], row["account"]) for row in rows]

    async def forgotten_since(self, account: str) -> datetime | None:
        """Return a moment before all that the ledger may have forgotten; None where it knows no run."""
        return await self._pool.fetchval(_SQL["forgotten_since"], account)  # type: ignore[no-any-return]

    async def charges_of(self, account: str, charge_ids: Sequence[str]) -> dict[str, Charge]:
        """Return those of these charges that are of an account, in whatever run and state."""
        rows = await self._pool.fetch(_SQL["charges_of"], account, list(charge_ids))
        return {row["charge_id"]: charge_from(row) for row in rows}

    async def count_open(self, account: str) -> int:
        """Return for how many charges of an account something may still be sent."""
        return await self._pool.fetchval(_SQL["count_open_charges"], account)  # type: ignore[no-any-return]

    async def remember_create(self, forgotten: FirstSend, *, created_epoch_seconds: int) -> Charge:
        """Journal a create that was sent before the restore, and return the charge, which is creating now.

        Raises:
            StaleWrite: The charge has moved on, or no restore is open.
        """
        charge = forgotten.charge
        row = await self._pool.fetchrow(
            _SQL["remember_create"],
            *(charge.charge_id, charge.create_version, charge.fence, forgotten.key, forgotten.path),
            *(forgotten.parameters, forgotten.fingerprint, instant(created_epoch_seconds), forgotten.reason),
        )
        if row is None:
            raise StaleWrite(f"charge {charge.charge_id} is no longer planned under fence {charge.fence}")
        return charge_from(row)
