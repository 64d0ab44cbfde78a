"""The orphan sweep's intents: cancels of what carries a charge's identity and is not the charge's own.

The charge's row is locked while that is decided. So whoever adopts the PaymentIntent comes before, and the
sweep is refused, or after, and finds the cancel intended (trace T7). The row itself only counts the cancel.
"""

from dataclasses import dataclass, replace
from typing import Any

from activities.ledger import sql
from activities.ledger.database import Connection, Pool
from activities.ledger.rows import Row, charge_from
from workflows.domain.answer import Lookup
from workflows.domain.charge import Charge, Intent
from workflows.domain.errors import invariant
from workflows.domain.keys import Fingerprint, IdempotencyKey, Operation, fingerprint, key_for
from workflows.domain.states import State
from workflows.domain.window import (
    SAFETY_MARGIN_SECONDS,
    WINDOW_SECONDS,
    Permission,
    rule,
    rule_on_skew,
)

_SQL = sql.load("sweep.sql")

# A create of the charge may be about to make, or to find, the very PaymentIntent: a planned one goes on with
# it or cancels it by itself, and a cancel in flight may end in a new create.
NOT_SWEPT = frozenset({State.PLANNED, State.CREATING, State.CANCELING, State.SKIPPED})
# While a restore is open nobody creates or adopts anything, and what was sent before it has lost its key.
NOT_SWEPT_RESTORING = frozenset({State.SKIPPED})


class NotNow(Exception):
    """Nothing may be canceled at this moment, with the reason; nothing was written."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """What is to be swept: a PaymentIntent of a charge's identity, as a fresh lookup showed it."""

    charge_id: str
    payment_intent: str
    path: str
    parameters: str  # canonical JSON
    lookup: Lookup
    reason: str
    not_swept: frozenset[State] = NOT_SWEPT


class SweepLedger:
    """Intents to cancel what is not a charge's own, in `keys` and `attempts`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def intend(self, orphan: Orphan) -> Intent:
        """Commit one send of a cancel: a new key's, or within its window once more that of an earlier sweep.

        The intent's charge says that the PaymentIntent is its own. So whatever is answered moves the row only
        if that has become true meanwhile.

        Raises:
            NotNow: The charge may still adopt the PaymentIntent, it is the charge's own, or the window rule
                says to wait.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(_SQL["lock_swept_charge"], orphan.charge_id)
            if row is None:
                raise NotNow(f"the ledger has no charge {orphan.charge_id}")
            charge = charge_from(row)
            _refuse(charge, orphan)
            newest = await connection.fetchrow(_SQL["newest_cancel"], orphan.charge_id, orphan.payment_intent)
            if newest is None:
                skewed = rule_on_skew(orphan.lookup.skew_seconds)
                if skewed is not None:
                    raise NotNow(skewed.reason)
                return await _freeze(connection, charge, orphan, orphan.reason)
            ruling = rule(
                age_seconds=_age(newest, row["now"].timestamp()),
                lookup_age_seconds=_age(newest, orphan.lookup.started_epoch_seconds),
                skew_seconds=orphan.lookup.skew_seconds,
                stored_failure=newest["stored_failure"],
            )
            match ruling.permission:
                case Permission.RESEND:
                    return await _send_again(connection, charge, orphan, newest)
                case Permission.REKEY:
                    return await _freeze(connection, charge, orphan, f"{orphan.reason}; {ruling.reason}")
                case Permission.WAIT:
                    raise NotNow(ruling.reason)

    async def note_canceled(self, orphan: Orphan, **evidence: Any) -> None:
        """Record, once, that Stripe shows what was swept as canceled, where no answer has said so."""
        await self._pool.execute(
            _SQL["note_swept"],
            orphan.charge_id,
            orphan.payment_intent,
            "Stripe shows it canceled",
            {"payment_intent": orphan.payment_intent, "state": State.CANCELED, **evidence},
        )


def _refuse(charge: Charge, orphan: Orphan) -> None:
    if charge.payment_intent == orphan.payment_intent:
        raise NotNow(f"{orphan.payment_intent} is the charge's own by now")
    if charge.state in orphan.not_swept:
        raise NotNow(f"the charge is {charge.state}: it may be about to adopt {orphan.payment_intent}")


def _age(key: Row, epoch_seconds: float) -> float:
    return epoch_seconds - float(key["first_intended_at"].timestamp())


async def _freeze(connection: Connection, charge: Charge, orphan: Orphan, reason: str) -> Intent:
    version = charge.cancel_version + 1
    key = key_for(Operation.CANCEL, orphan.payment_intent, version)
    frozen = fingerprint(orphan.path, orphan.parameters)
    row = await connection.fetchrow(
        _SQL["freeze_sweep"],
        *(charge.charge_id, orphan.payment_intent, sorted(orphan.not_swept), version),
        *(key, orphan.path, orphan.parameters, frozen, reason),
    )
    return _intent(charge, key, row)


async def _send_again(connection: Connection, charge: Charge, orphan: Orphan, newest: Row) -> Intent:
    invariant(
        fingerprint(newest["path"], newest["parameters"]) == newest["fingerprint"],
        f"the body stored under {newest['key']} is not the one that was frozen",
    )
    row = await connection.fetchrow(
        _SQL["send_sweep_again"],
        *(charge.charge_id, orphan.payment_intent, sorted(orphan.not_swept), newest["key"], orphan.reason),
        float(WINDOW_SECONDS - SAFETY_MARGIN_SECONDS),
    )
    return _intent(charge, newest["key"], row)


def _intent(charge: Charge, key: str, row: Row | None) -> Intent:
    if (
        row is None
    ):  # the charge's row is locked, so only the key's age can have changed since it was looked at
        raise NotNow(f"a guard of {key} failed")
    return Intent(
        charge=replace(charge, payment_intent=row["payment_intent"]),
        operation=Operation.CANCEL,
        key=IdempotencyKey(key),
        send_no=row["send_no"],
        version=row["version"],
        path=row["path"],
        parameters=row["parameters"],
        fingerprint=Fingerprint(row["fingerprint"]),
        intended_epoch_seconds=row["intended_at"].timestamp(),
        first_send=False,  # which only says who may be refused, and a cancel never is
    )
