"""Charges in flight, taken over by whoever is not their run."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from activities.ledger import sql
from activities.ledger.database import Pool
from activities.ledger.rows import charge_from
from workflows.domain.charge import Charge
from workflows.domain.mode import CHARGING_PHASES, Mode, mode_of

_SQL = sql.load("in_flight.sql")


@dataclass(frozen=True, slots=True)
class Quiet:
    """A charge in flight that nobody else works with, under a new fence, and how its run stands."""

    charge: Charge
    mode: Mode
    run_is_open: bool


class InFlightLedger:
    """Claims beside those of a run."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def claim_quiet(
        self, charge_ids: Sequence[str], *, quiet_seconds: float, abandoned_runs: Collection[str]
    ) -> list[Quiet]:
        """Take those of these charges that are in flight and that no live slice has, under a new fence."""
        rows = await self._pool.fetch(
            _SQL["claim_quiet"],
            list(charge_ids),
            float(quiet_seconds),
            sorted(CHARGING_PHASES),
            sorted(abandoned_runs),
        )
        return [
            Quiet(
                charge_from(row),
                mode_of(phase=row["phase"], hold=row["hold"], canceling=row["canceling"]),
                row["phase"] in CHARGING_PHASES,
            )
            for row in rows
        ]
