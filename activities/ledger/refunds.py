"""Refund requests: kept under the charge's lock, sent under a key of their own, ended once."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from activities.ledger import sql
from activities.ledger.database import Pool
from activities.ledger.rows import frozen_key_from, instant
from workflows.domain.answer import Answer
from workflows.domain.charge import FrozenKey
from workflows.domain.errors import RefusedToStart, StaleWrite
from workflows.domain.keys import Fingerprint, IdempotencyKey, Operation, key_for
from workflows.domain.refund import RefundVerdict, RequestState
from workflows.domain.window import SAFETY_MARGIN_SECONDS, WINDOW_SECONDS

_SQL = sql.load("refunds.sql")
_READ_KEY = sql.load("charges.sql")["read_key"]


@dataclass(frozen=True, slots=True)
class RefundRequest:
    """What somebody asked for; the amount is in minor units. What is asked for never changes."""

    request_id: str
    charge_id: str
    account: str
    run_id: str
    payment_intent: str
    amount_minor: int
    currency: str
    kind: str
    who: str
    reason: str
    state: RequestState
    refund_id: str | None
    detail: str | None
    requested_at: datetime
    changed_at: datetime

    @property
    def key(self) -> IdempotencyKey:
        """The one key that it is ever sent under (trace T12)."""
        return key_for(Operation.REFUND, self.request_id, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRequest:
    """A request about to be kept. `paid_minor` came in at Stripe, `returned_minor` went back already."""

    request_id: str
    charge_id: str
    payment_intent: str
    amount_minor: int
    currency: str
    kind: str
    who: str
    reason: str
    paid_minor: int
    returned_minor: int


class RefundLedger:
    """The table `refund_requests`, and the keys and attempts of refunds."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def request(self, new: NewRequest) -> RefundRequest:
        """Keep a request.

        Raises:
            RefusedToStart: With what went back and what else is asked for, it is more than was paid.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(_SQL["lock_refunded_charge"], new.charge_id)
            row = await connection.fetchrow(
                _SQL["request_refund"],
                new.request_id,
                new.charge_id,
                new.payment_intent,
                new.amount_minor,
                new.currency,
                new.kind,
                new.who,
                new.reason,
                new.paid_minor,
                new.returned_minor,
            )
        if row is None:
            raise RefusedToStart(
                f"{new.amount_minor} {new.currency} of {new.payment_intent} can't be refunded: "
                f"{new.paid_minor} was paid, {new.returned_minor} went back already, and other requests are "
                "open (minor units); see `chargeonce refunds`"
            )
        return _request_from(dict(row))

    async def read(self, request_id: str) -> RefundRequest:
        """Return a request. Raises RefusedToStart where there is none of that id."""
        row = await self._pool.fetchrow(_SQL["read_refund_request"], request_id)
        if row is None:
            raise RefusedToStart(f"there is no refund request {request_id!r}: see `chargeonce refunds`")
        return _request_from(dict(row))

    async def newest(
        self, *, charge_id: str | None = None, run_id: str | None = None, limit: int
    ) -> list[dict[str, Any]]:
        """Return up to `limit` requests, newest first, with the status of what was made of each."""
        rows = await self._pool.fetch(_SQL["list_refund_requests"], charge_id, run_id, limit)
        return [dict(row) for row in rows]

    async def may_have_been_forgotten(self, request: RefundRequest) -> bool:
        """Return whether a send of the request may have been forgotten by a restore of the ledger."""
        return await self._pool.fetchval(  # type: ignore[no-any-return]
            _SQL["may_have_been_forgotten"], request.request_id
        )

    async def intend_first(
        self, request: RefundRequest, *, path: str, parameters: str, fingerprint: Fingerprint
    ) -> int:
        """Freeze the request's key and commit its first send; return the send's number.

        Raises:
            StaleWrite: Somebody has begun with it.
        """
        return await self._intend("intend_refund", request, path, parameters, fingerprint)

    async def intend_again(self, request: RefundRequest, *, reason: str) -> int:
        """Commit one more send of the request's key; return the send's number.

        Raises:
            StaleWrite: The request has ended, or its key is too old to be resent (I5).
        """
        youngest = float(WINDOW_SECONDS - SAFETY_MARGIN_SECONDS)
        return await self._intend("intend_refund_again", request, reason, youngest)

    async def _intend(self, block: str, request: RefundRequest, *arguments: object) -> int:
        row = await self._pool.fetchrow(_SQL[block], request.request_id, request.key, *arguments)
        if row is None:
            raise StaleWrite(f"refund request {request.request_id} has moved on, or is too old to be sent")
        return row["send_no"]  # type: ignore[no-any-return]

    async def record(
        self, request: RefundRequest, send_no: int, answer: Answer, verdict: RefundVerdict
    ) -> None:
        """Complete the journal with an answer, and end the request if the answer does."""
        await self._pool.execute(
            _SQL["record_refund_answer"],
            request.key,
            send_no,
            request.request_id,
            verdict.state,
            None if verdict.refund is None else verdict.refund.refund_id,
            verdict.reason,
            answer.transport,
            answer.http_status,
            answer.error_type,
            answer.code,
            answer.message,
            answer.replayed,
            answer.request_id,
            instant(answer.stripe_epoch_seconds),
            verdict.proof,
            verdict.cause,
            request.payment_intent,
        )

    async def end(
        self, request: RefundRequest, state: RequestState, reason: str, *, refund_id: str | None = None
    ) -> None:
        """End a request by what a lookup showed; one that has ended so already stays."""
        await self._pool.execute(_SQL["end_refund_request"], request.request_id, state, refund_id, reason)

    async def frozen_key(self, request: RefundRequest) -> tuple[FrozenKey, float]:
        """Return the request's key, and the ledger's clock as it is now in epoch seconds."""
        row = await self._pool.fetchrow(_READ_KEY, request.key)
        if row is None:
            raise StaleWrite(f"key {request.key} was never frozen")
        return frozen_key_from(row), row["now"].timestamp()


def _request_from(row: dict[str, Any]) -> RefundRequest:
    return RefundRequest(**{**row, "state": RequestState(row["state"])})
