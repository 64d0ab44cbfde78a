"""The send path's writes: claim, intend, record, settle. One method per intent, every write under its guards.

A guarded write that matches no row raises StaleWrite: somebody with a newer fence owns the charge, or
Stripe's word has moved it. The caller reads the row again; it never shrugs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from activities.ledger import sql
from activities.ledger.database import Pool
from activities.ledger.group_commit import GroupCommit
from activities.ledger.reopening import ReopeningLedger
from activities.ledger.rows import Row, charge_from, columns, frozen_key_from, instant
from workflows.domain.charge import Charge, FrozenKey, Intent, Outcome
from workflows.domain.errors import StaleWrite, invariant
from workflows.domain.keys import Fingerprint, IdempotencyKey, Operation, fingerprint
from workflows.domain.mode import Claims, Mode, claims_of
from workflows.domain.states import State, advance
from workflows.domain.window import SAFETY_MARGIN_SECONDS, WINDOW_SECONDS

_SQL = sql.load("charges.sql")

IN_FLIGHT_STATE = {
    Operation.CREATE: State.CREATING,
    Operation.CONFIRM: State.CONFIRMING,
    Operation.CANCEL: State.CANCELING,
}
CANCELED_UNSENT = "canceled with the run: nothing of it is open at Stripe"
GIVEN_BACK = "as the earlier run left it: the run that took it over was given up before anybody approved it"
_EVERYTHING = claims_of(Mode.NORMAL)


@dataclass(frozen=True)
class FirstSend:
    """A new key about to be frozen: version `charge.version_of(operation) + 1`.

    `is_alone` says that it is known of every send of the earlier versions what it did: a refusal of this one
    is a refusal of the whole.
    """

    charge: Charge
    operation: Operation
    path: str
    parameters: str  # canonical JSON
    reason: str
    is_alone: bool = False

    @cached_property
    def version(self) -> int:
        """The version that this send opens."""
        return self.charge.version_of(self.operation) + 1

    @cached_property
    def key(self) -> IdempotencyKey:
        """The key that this send freezes."""
        return self.charge.key_of(self.operation, self.version)

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """What binds the key to its path and body (I3)."""
        return fingerprint(self.path, self.parameters)

    @property
    def previous_key(self) -> IdempotencyKey | None:
        """The key whose window must have passed (I4); None for version 1."""
        if self.version == 1:
            return None
        return self.charge.key_of(self.operation, self.version - 1)


@dataclass(frozen=True, slots=True)
class Resend:
    """One more send of a frozen key."""

    charge: Charge
    frozen: FrozenKey
    reason: str


class ChargeLedger:
    """The `charges`, `keys`, `attempts` and `decisions` tables, as the send path uses them."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.reopening = ReopeningLedger(pool)
        self._first_sends = GroupCommit(self._intend_first, subject=lambda send: send.charge.charge_id)
        self._resends = GroupCommit(self._intend_again, subject=lambda send: send.charge.charge_id)
        self._outcomes = GroupCommit(self._record, subject=lambda outcome: outcome.intent.charge.charge_id)

    async def claim_slice(self, run_id: str, slice_no: int, claims: Claims = _EVERYTHING) -> list[Charge]:
        """Take the unsettled, due charges of a slice under a new fence, or those asked for."""
        states, before_due = list(claims.states), list(claims.before_due)
        rows = await self._pool.fetch(_SQL["claim_slice"], run_id, slice_no, states, before_due)
        return [charge_from(row) for row in rows]

    async def claim_due(self, run_id: str, *, limit: int, claims: Claims = _EVERYTHING) -> list[Charge]:
        """Take up to `limit` unsettled, due charges of a run under a new fence, or those asked for."""
        states, before_due = list(claims.states), list(claims.before_due)
        rows = await self._pool.fetch(_SQL["claim_due"], run_id, limit, states, before_due)
        return [charge_from(row) for row in rows]

    async def count_not_started(self, run_id: str, slice_no: int) -> int:
        """Return how many charges of a slice wait for their next first send."""
        return await self._pool.fetchval(_SQL["count_not_started"], run_id, slice_no)  # type: ignore[no-any-return]

    async def has_open(self, run_id: str) -> bool:
        """Return whether a charge of the run is not settled yet."""
        return await self._pool.fetchval(_SQL["has_open"], run_id)  # type: ignore[no-any-return]

    async def cancel_planned(self, run_id: str, slice_no: int | None, *, limit: int) -> int:
        """Cancel up to `limit` charges that nothing was sent for, of a slice or anywhere in the run.

        What a run that nobody approved had taken over is given back: it ends as the earlier run left it.
        Returns how many; none of a run that is not being canceled.
        """
        return await self._pool.fetchval(  # type: ignore[no-any-return]
            _SQL["cancel_planned"], run_id, slice_no, CANCELED_UNSENT, limit, GIVEN_BACK
        )

    async def cancel_unsent(self, charge: Charge) -> Charge | None:
        """Cancel a charge where nothing of it can be at Stripe; None where that is not certain.

        None as well where its run is not being canceled, or another sender has claimed it.
        """
        row = await self._pool.fetchrow(
            _SQL["cancel_unsent"], charge.charge_id, charge.fence, CANCELED_UNSENT
        )
        return None if row is None else charge_from(row)

    async def read(self, charge_id: str) -> Charge:
        """Return the charge as it stands now."""
        rows = await self._pool.fetch(_SQL["read_charges"], [charge_id])
        invariant(len(rows) == 1, f"charge {charge_id} is in the ledger once")
        return charge_from(rows[0])

    async def now(self) -> float:
        """Return the ledger's clock in epoch seconds, the only one for ages, due times and periods (I10)."""
        return (await self._pool.fetchval(_SQL["ledger_now"])).timestamp()  # type: ignore[no-any-return]

    async def intend_first(self, send: FirstSend) -> Intent:
        """Freeze a new key and commit its first send (I1, I3, I4, I6, I7, I13).

        Raises:
            StaleWrite: The charge is no longer as `send.charge` says, its run may begin nothing (a cancel may
                go all the same), its previous key is too young (I4), or its PaymentIntent was not shown to
                be canceled before a new create (I11).
        """
        in_flight = IN_FLIGHT_STATE[send.operation]
        if send.charge.state is not in_flight:  # a new version of an operation in flight stays where it is
            advance(send.charge.state, in_flight)
        return _committed(await self._first_sends.submit(send), send.charge)

    async def intend_again(self, send: Resend) -> Intent:
        """Commit one more send of a frozen key, whose body is resent exactly as stored.

        Raises:
            StaleWrite: The charge is no longer as `send.charge` says, or the key is too old to resend (I5).
            InvariantViolation: The stored body does not match its fingerprint.
        """
        invariant(
            fingerprint(send.frozen.path, send.frozen.parameters) == send.frozen.fingerprint,
            f"the body stored under {send.frozen.key} is not the one that was frozen",
        )
        return _committed(await self._resends.submit(send), send.charge)

    async def record(self, outcome: Outcome) -> Charge:
        """Complete the journal with an answer, apply what it proves, and return the charge as it is now."""
        applied = await self._outcomes.submit(outcome)
        return applied or await self.read(outcome.intent.charge.charge_id)

    async def settle(
        self,
        charge: Charge,
        state: State,
        *,
        payment_intent: str | None,
        latest_charge: str | None,
        reason: str,
        decision: str = "settled_by_lookup",
        alarm: bool = False,
        **evidence: Any,
    ) -> Charge:
        """Apply what a lookup found, if the charge is still as it was before the lookup (I14).

        The decision, with its alarm and evidence, is recorded in the same transaction.

        Raises:
            StaleWrite: It is not, so the lookup says nothing about it any more.
        """
        row = await self._pool.fetchrow(
            _SQL["settle_charge"],
            charge.charge_id,
            charge.state,
            charge.create_version,
            charge.confirm_version,
            charge.payment_intent,
            state,
            payment_intent,
            latest_charge,
            reason,
            decision,
            alarm,
            {"state": state, "payment_intent": payment_intent, **evidence},
        )
        return charge_from(_present(row, charge))

    async def defer(self, charge: Charge, *, seconds: float, reason: str) -> Charge:
        """Say when the charge is looked at next. Raises StaleWrite if another sender has claimed it."""
        row = await self._pool.fetchrow(
            _SQL["defer_charge"], charge.charge_id, charge.fence, float(seconds), reason
        )
        return charge_from(_present(row, charge))

    async def frozen_key(self, key: IdempotencyKey) -> tuple[FrozenKey, float]:
        """Return a frozen key, and the ledger's clock as it is now in epoch seconds."""
        row = await self._pool.fetchrow(_SQL["read_key"], key)
        if row is None:
            raise StaleWrite(f"key {key} was never frozen")
        return frozen_key_from(row), row["now"].timestamp()

    async def cancel_intended(self, charge_id: str) -> frozenset[str]:
        """Return the PaymentIntents of a charge that a cancel was ever intended for."""
        return frozenset(
            row["payment_intent"] for row in await self._pool.fetch(_SQL["cancel_intended"], charge_id)
        )

    async def note(
        self, charge: Charge, decision: str, reason: str, *, alarm: bool = False, **evidence: Any
    ) -> None:
        """Record why something happened to a charge, for `explain` and for whoever is on call."""
        await self._pool.execute(_SQL["note_decision"], charge.charge_id, decision, reason, alarm, evidence)

    async def _intend_first(self, sends: Sequence[FirstSend]) -> list[Intent | None]:
        arguments = columns([_first_send_row(send) for send in sends])
        committed = _by_key(await self._pool.fetch(_SQL["intend_first"], *arguments, WINDOW_SECONDS))
        return [_first_intent(send, committed.get(send.key)) for send in sends]

    async def _intend_again(self, sends: Sequence[Resend]) -> list[Intent | None]:
        arguments = columns([_resend_row(send) for send in sends])
        committed = _by_key(
            await self._pool.fetch(_SQL["intend_again"], *arguments, WINDOW_SECONDS - SAFETY_MARGIN_SECONDS)
        )
        return [_next_intent(send, committed.get(send.frozen.key)) for send in sends]

    async def _record(self, outcomes: Sequence[Outcome]) -> list[Charge | None]:
        arguments = columns([_outcome_row(outcome) for outcome in outcomes])
        rows = await self._pool.fetch(_SQL["record_answers"], *arguments)
        applied = {row["charge_id"]: charge_from(row) for row in rows}
        return [applied.get(outcome.intent.charge.charge_id) for outcome in outcomes]


def _present(row: Row | None, charge: Charge) -> Row:
    if row is None:
        raise StaleWrite(f"charge {charge.charge_id} is no longer {charge.state} under fence {charge.fence}")
    return row


def _committed(intent: Intent | None, charge: Charge) -> Intent:
    if intent is None:
        raise StaleWrite(f"no intent for charge {charge.charge_id}: a guard of {charge.state} failed")
    return intent


def _by_key(rows: Sequence[Row]) -> dict[str, Row]:
    return {row["key"]: row for row in rows}


def _first_send_row(send: FirstSend) -> tuple[Any, ...]:
    charge = send.charge
    return (
        charge.charge_id,
        charge.run_id,
        charge.fence,
        charge.state,
        IN_FLIGHT_STATE[send.operation],
        send.operation,
        send.version,
        charge.payment_intent,
        send.key,
        send.previous_key,
        send.path,
        send.parameters,
        send.fingerprint,
        send.reason,
    )


def _first_intent(send: FirstSend, row: Row | None) -> Intent | None:
    if row is None:
        return None
    return Intent(
        charge=send.charge.intending(send.operation, send.version, IN_FLIGHT_STATE[send.operation]),
        operation=send.operation,
        key=send.key,
        send_no=row["send_no"],
        version=send.version,
        path=send.path,
        parameters=send.parameters,
        fingerprint=send.fingerprint,
        intended_epoch_seconds=row["intended_at"].timestamp(),
        first_send=send.version == 1 or send.is_alone,
    )


def _resend_row(send: Resend) -> tuple[Any, ...]:
    charge = send.charge
    return (
        charge.charge_id,
        charge.run_id,
        charge.fence,
        charge.state,
        charge.create_version,
        charge.confirm_version,
        charge.payment_intent,
        send.frozen.key,
        send.reason,
    )


def _next_intent(send: Resend, row: Row | None) -> Intent | None:
    if row is None:
        return None
    frozen = send.frozen
    return Intent(
        charge=send.charge,
        operation=frozen.operation,
        key=frozen.key,
        send_no=row["send_no"],
        version=frozen.version,
        path=frozen.path,
        parameters=frozen.parameters,
        fingerprint=frozen.fingerprint,
        intended_epoch_seconds=row["intended_at"].timestamp(),
        first_send=frozen.open_sends == 0 and frozen.earlier_open_sends == 0,
    )


def _outcome_row(outcome: Outcome) -> tuple[Any, ...]:
    intent, answer, verdict = outcome.intent, outcome.answer, outcome.verdict
    charge, found = intent.charge, answer.payment_intent
    return (
        intent.key,
        intent.send_no,
        charge.charge_id,
        charge.state,
        charge.create_version,
        charge.confirm_version,
        charge.payment_intent,
        outcome.next_state,
        found.id if found else None,
        found.latest_charge if found else None,
        verdict.reason,
        answer.transport,
        answer.http_status,
        answer.error_type,
        answer.code,
        answer.decline_code,
        answer.advice_code,
        answer.network_decline_code,
        answer.network_advice_code,
        answer.message,
        answer.replayed,
        answer.request_id,
        instant(answer.stripe_epoch_seconds),
        found.status if found else None,
        verdict.proof,
        verdict.cause,
    )
