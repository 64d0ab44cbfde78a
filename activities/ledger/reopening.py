"""What the ledger knows of a charge that is to be charged again."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from activities.ledger import sql
from activities.ledger.database import Pool
from activities.ledger.rows import charge_from
from workflows.domain.answer import PaymentIntent
from workflows.domain.charge import Charge
from workflows.domain.errors import StaleWrite
from workflows.domain.reopen import KeyHistory

_SQL = sql.load("reopening.sql")


@dataclass(frozen=True, slots=True)
class History:
    """A charge's keys, as of one moment. Times are epoch seconds by the ledger's clock.

    `creates_determined` and `confirms_determined` say that every send of them has an answer that says what it
    did; `was_handed_over` that the run took the charge over from one that waited for its customer.
    """

    keys: KeyHistory
    is_corrected: bool
    was_handed_over: bool
    creates_determined: bool
    confirms_determined: bool
    first_create_epoch_seconds: float
    now: float


class ReopeningLedger:
    """The reads and writes that charging again needs beside the send path's."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def history(self, charge: Charge) -> History:
        """Return what is known of a charge that has had a key.

        Raises:
            StaleWrite: The charge is no longer as `charge` says.
        """
        row = await self._pool.fetchrow(_SQL["read_history"], charge.charge_id)
        expected = (charge.create_version, charge.confirm_version, charge.payment_intent)
        if row is None or expected != (row["create_version"], row["confirm_version"], row["payment_intent"]):
            raise StaleWrite(f"charge {charge.charge_id} has moved on")
        now = row["now"].timestamp()
        return History(
            keys=KeyHistory(
                create_version=row["create_version"],
                payment_intent=row["payment_intent"],
                payment_intent_canceled=row["is_canceled"],
                must_cancel=row["is_corrected"] or row["is_leftover"],
                newest_create_epoch_seconds=_epoch(row["newest_create_at"]),
                newest_confirm_epoch_seconds=_epoch(row["newest_confirm_at"]),
            ),
            is_corrected=row["is_corrected"],
            was_handed_over=row["was_handed_over"],
            creates_determined=row["open_creates"] == 0,
            confirms_determined=row["open_confirms"] == 0,
            first_create_epoch_seconds=_epoch(row["first_create_at"]) or now,
            now=now,
        )

    async def apply_correction(self, charge: Charge) -> Charge:
        """Let a planned charge without a PaymentIntent that could succeed be of the body that its run wants.

        Raises:
            StaleWrite: Another sender has claimed the charge, or there is nothing to correct.
        """
        row = await self._pool.fetchrow(
            _SQL["apply_correction"], charge.charge_id, charge.run_id, charge.fence
        )
        if row is None:
            raise StaleWrite(f"charge {charge.charge_id} is not to be corrected under fence {charge.fence}")
        return charge_from(row)

    async def take_leftover(
        self, charge: Charge, leftover: PaymentIntent, request_ids: Sequence[str]
    ) -> Charge:
        """Take an earlier create's PaymentIntent as a planned charge's own: to be canceled, never confirmed.

        Raises:
            StaleWrite: Another sender has claimed the charge, or its own PaymentIntent could still succeed.
        """
        row = await self._pool.fetchrow(
            _SQL["take_leftover"],
            charge.charge_id,
            charge.fence,
            charge.payment_intent,
            leftover.id,
            leftover.latest_charge,
            {"payment_intent": leftover.id, "requests": list(request_ids)},
        )
        if row is None:
            raise StaleWrite(f"charge {charge.charge_id} is no longer planned under fence {charge.fence}")
        return charge_from(row)


def _epoch(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()
