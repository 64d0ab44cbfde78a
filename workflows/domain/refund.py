"""What an answer to a refund, or a list of refunds, proves about a refund that was asked for.

The rows of DESIGN.md's verdict table, for an operation without versions: a refund is never re-keyed by
itself, so past its key's window only a list can find it, and people decide about what is not found.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from workflows.domain.answer import Answer, Transport
from workflows.domain.money_back import Refund
from workflows.domain.verdict import CAP_EXCEEDED, UPSTREAM_NOT_REACHED, Cause, Proof
from workflows.domain.window import Permission, rule


class RequestState(StrEnum):
    """Where a refund request stands. What becomes of a refund that was made, its own status says."""

    REQUESTED = "requested"
    SENDING = "sending"
    MADE = "made"
    REFUSED = "refused"
    REVIEW = "review"


@dataclass(frozen=True, slots=True)
class RefundVerdict:
    """What is proved. `state` and, where it was made, `refund` are set exactly where `proof` is PROVED."""

    proof: Proof
    reason: str
    state: RequestState | None = None
    refund: Refund | None = None
    cause: Cause | None = None


def judge_refund(answer: Answer, refund: Refund | None, *, first_send: bool) -> RefundVerdict:
    """Return what an answer to a refund proves; `refund` is what could be read in its body."""
    if answer.transport is Transport.NOT_SENT or answer.code == UPSTREAM_NOT_REACHED:
        return _not_executed(Cause.UNREACHABLE, "nothing was sent")
    if answer.transport is not Transport.ANSWERED or answer.http_status is None:
        return _unknown(Cause.NO_ANSWER, f"no readable answer ({answer.transport})")
    if answer.succeeded:
        if refund is None:
            return _unknown(Cause.NO_ANSWER, "a success without a refund that can be read")
        return made(refund)
    if answer.replayed:
        if answer.http_status >= 500:
            return _unknown(Cause.STORED_FAILURE, "Stripe replays a stored failure until the window ends")
        return RefundVerdict(Proof.OUTDATED, "a replayed answer may be outdated")
    return _judge_error(answer, first_send=first_send)


def made(refund: Refund) -> RefundVerdict:
    """Return that the refund exists, whatever its status is."""
    return RefundVerdict(Proof.PROVED, f"{refund.refund_id} is {refund.status}", RequestState.MADE, refund)


def _judge_error(answer: Answer, *, first_send: bool) -> RefundVerdict:
    status, said = answer.http_status or 0, answer.code or f"HTTP {answer.http_status}"
    if status == 400 and answer.error_type == "idempotency_error":
        return RefundVerdict(Proof.PROVED, "idempotency_error: key and body disagree", RequestState.REVIEW)
    if status in {401, 403}:
        return _not_executed(Cause.CREDENTIALS, said)
    if status == 409 and answer.code == "idempotency_key_in_use":
        return _unknown(Cause.KEY_IN_USE, "an earlier send of this key is still running")
    if status == 429:
        cause = Cause.CAP if answer.code == CAP_EXCEEDED else Cause.RATE_LIMITED
        return _not_executed(cause, answer.rate_limited_reason or said)
    if status in {400, 402, 404}:
        if first_send:
            words = f"{said}: {answer.message}" if answer.message else said
            return RefundVerdict(Proof.PROVED, words, RequestState.REFUSED)
        return _unknown(Cause.EARLIER_SEND_OPEN, f"HTTP {status} says nothing about earlier sends")
    return _unknown(Cause.SERVER_ERROR, f"HTTP {status}")


@dataclass(frozen=True, slots=True)
class Next:
    """What to do with a request whose sends decide nothing: send again, wait, or leave it to people."""

    resend: bool
    review: bool
    reason: str
    wait_seconds: float = 0.0


def find_refund(refunds: Sequence[Refund], request_id: str) -> Refund | None:
    """Return the refund that a request has made, by the id in its metadata."""
    return next((one for one in refunds if one.request_id == request_id), None)


def rule_on_refund(
    *, age_seconds: float, listed_in_full: bool, skew_seconds: float | None, stored_failure: bool
) -> Next:
    """Return what may be done with a request whose refund no list shows.

    Args:
        age_seconds: The age of its key by the ledger's clock.
        listed_in_full: Whether all refunds of the PaymentIntent were shown, after that age.
        skew_seconds: Ledger's clock minus Stripe's; None where it is not known.
        stored_failure: Stripe replays a 5xx under this key.
    """
    ruling = rule(
        age_seconds=age_seconds,
        lookup_age_seconds=age_seconds if listed_in_full else None,
        skew_seconds=skew_seconds,
        stored_failure=stored_failure,
    )
    match ruling.permission:
        case Permission.RESEND:
            return Next(resend=True, review=False, reason=ruling.reason)
        case Permission.WAIT:
            return Next(resend=False, review=False, reason=ruling.reason, wait_seconds=ruling.wait_seconds)
        case Permission.REKEY:
            why = "its key's window has passed, and Stripe lists no such refund: a refund is never re-keyed"
            return Next(resend=False, review=True, reason=why)


def _not_executed(cause: Cause, reason: str) -> RefundVerdict:
    return RefundVerdict(Proof.NOT_EXECUTED, reason, cause=cause)


def _unknown(cause: Cause, reason: str) -> RefundVerdict:
    return RefundVerdict(Proof.UNKNOWN, reason, cause=cause)
