"""A charge's amount, currency and customer, put back to what is frozen with the key of its PaymentIntent."""

from dataclasses import dataclass
from typing import Any

import asyncpg

from activities.ledger import sql
from activities.ledger.database import Pool
from activities.ledger.rows import charge_from
from workflows.domain.charge import Charge
from workflows.domain.errors import StaleWrite

_SQL = sql.load("restore.sql")
_NOTE = sql.load("charges.sql")["note_decision"]


@dataclass(frozen=True, slots=True)
class Body:
    """What Stripe was asked for: an amount in minor units, its currency, and whose it is."""

    amount_minor: int
    currency: str
    customer: str


class RowRestoreLedger:
    """The one write that changes what a charge is of while its PaymentIntent can be paid, or is."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def restore(self, charge: Charge, body: Body, *, reason: str, **evidence: Any) -> Charge:
        """Give a charge this body, with an alarm on record in the same transaction.

        `evidence` names the PaymentIntent and the create key, by which the database checks that the body is
        the frozen one.

        Raises:
            StaleWrite: The charge has moved on, its PaymentIntent is canceled, or the database finds that
                this is not the frozen body.
        """
        unmoved = (
            charge.charge_id,
            charge.state,
            charge.create_version,
            charge.confirm_version,
            charge.payment_intent,
            charge.currency,
            charge.amount_minor,
            charge.customer,
        )
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                found = await connection.fetchrow(_SQL["lock_unmoved"], *unmoved)
                if found is None:
                    raise StaleWrite(f"charge {charge.charge_id} is no longer as it was read")
                if found["is_canceled"]:
                    raise StaleWrite(
                        f"{charge.payment_intent} is canceled: a later run may have corrected it"
                    )
                await connection.execute(_NOTE, charge.charge_id, "restored", reason, True, evidence)
                row = await connection.fetchrow(
                    _SQL["restore_charge"], *unmoved, body.currency, body.amount_minor, body.customer
                )
        except asyncpg.IntegrityConstraintViolationError as refusal:
            raise StaleWrite(f"the ledger refuses it: {refusal}") from refusal
        if row is None:
            raise StaleWrite(f"charge {charge.charge_id} is no longer as it was read")
        return charge_from(row)
