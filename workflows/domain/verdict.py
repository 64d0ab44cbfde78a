"""What an answer proves. The rows of DESIGN.md's verdict table, in its order.

A verdict speaks about one send. "Not executed" says nothing about earlier sends of the charge, so only a
first send can be refused; anything that is not proved stays unknown until Stripe says otherwise.
"""

from dataclasses import dataclass
from enum import StrEnum

from workflows.domain.answer import Answer, PaymentIntent, Transport
from workflows.domain.keys import Operation
from workflows.domain.states import State

UPSTREAM_NOT_REACHED = "upstream_not_reached"  # the spend-cap proxy's word for "Stripe never saw it"
PROXY_HEADER = "Chargeonce-Proxy"  # stands on answers whose `Date` is the spend-cap proxy's and not Stripe's
CAP_EXCEEDED = "spend_cap_exceeded"  # the spend-cap proxy's own 429
AUTHENTICATION_REQUIRED = frozenset({"authentication_required", "authentication_not_handled"})


class Proof(StrEnum):
    """How much an answer proves."""

    PROVED = "proved"  # the charge's state is known: Verdict.state
    NOT_EXECUTED = "not_executed"  # this send did nothing
    UNKNOWN = "unknown"  # it may have done something
    OUTDATED = "outdated"  # a replayed answer: true once, so ask again before recording it


class Cause(StrEnum):
    """Why an answer proves no state, which decides what to do next."""

    RATE_LIMITED = "rate_limited"
    CAP = "cap"
    CREDENTIALS = "credentials"
    UNREACHABLE = "unreachable"
    KEY_IN_USE = "key_in_use"
    STORED_FAILURE = "stored_failure"  # a replayed 5xx: resending repeats it until the window ends
    NO_ANSWER = "no_answer"
    SERVER_ERROR = "server_error"
    EARLIER_SEND_OPEN = "earlier_send_open"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one answer proves. `state` is set exactly where `proof` is PROVED, `cause` elsewhere."""

    proof: Proof
    state: State | None = None
    cause: Cause | None = None
    reason: str = ""


# Statuses that end or may end in money, or in certainty, whichever request they are seen by.
CONCLUSIVE_STATUSES = {
    "succeeded": State.SUCCEEDED,
    "processing": State.PROCESSING,
    "canceled": State.CANCELED,
}


def judge(operation: Operation, answer: Answer, *, first_send: bool) -> Verdict:
    """Return what `answer` to a send of `operation` proves.

    `first_send` is true only if no other attempt of the operation, at any version, can have done anything
    (invariant I12): then a refusal of this one is a refusal of them all.
    """
    if answer.transport is Transport.NOT_SENT or answer.code == UPSTREAM_NOT_REACHED:
        return _not_executed(Cause.UNREACHABLE, "nothing was sent")
    if answer.transport is not Transport.ANSWERED or answer.http_status is None:
        return _unknown(Cause.NO_ANSWER, f"no readable answer ({answer.transport})")
    intent = answer.payment_intent
    if not answer.succeeded and intent is not None and intent.status in CONCLUSIVE_STATUSES:
        return _proved(CONCLUSIVE_STATUSES[intent.status], "an earlier send settled it")
    if answer.replayed and not _is_replayed_success(operation, answer):
        return _judge_replay(answer)
    if answer.succeeded:
        return _judge_success(operation, intent)
    return _judge_error(operation, answer, first_send=first_send)


def _is_replayed_success(operation: Operation, answer: Answer) -> bool:
    """A replayed create answers its one question, the id. Other replays are history unless conclusive."""
    if not answer.succeeded or answer.payment_intent is None:
        return False
    return operation is Operation.CREATE or answer.payment_intent.status in {"succeeded", "canceled"}


def _judge_replay(answer: Answer) -> Verdict:
    if answer.http_status is not None and answer.http_status >= 500:
        return _unknown(Cause.STORED_FAILURE, "Stripe replays a stored failure until the window ends")
    return Verdict(Proof.OUTDATED, reason="a replayed answer may be outdated")


def _judge_success(operation: Operation, intent: PaymentIntent | None) -> Verdict:
    if intent is None:
        return _unknown(Cause.NO_ANSWER, "a success without a PaymentIntent")
    return judge_status(operation, intent)


def judge_status(operation: Operation, intent: PaymentIntent) -> Verdict:
    """Return what a PaymentIntent's status proves as the fresh answer to `operation`."""
    status = intent.status
    if status == "canceled":
        return _proved(State.CANCELED, "its PaymentIntent is canceled at Stripe")
    if status in CONCLUSIVE_STATUSES:
        return _proved(CONCLUSIVE_STATUSES[status], status)
    if status == "requires_action":
        return _proved(State.NEEDS_CUSTOMER, "the customer has to authenticate")
    if status in {"requires_confirmation", "requires_payment_method"}:
        if operation is Operation.CREATE:
            return _proved(State.PREPARED, status)
        if operation is Operation.CONFIRM and status == "requires_payment_method":
            return _judge_decline(intent.last_error_code, intent.last_decline_code)
        return _unknown(Cause.EARLIER_SEND_OPEN, f"{status} after {operation}")
    return _proved(State.REVIEW, f"unexpected status {status}")


def _judge_decline(code: str | None, decline_code: str | None) -> Verdict:
    if code in AUTHENTICATION_REQUIRED or decline_code in AUTHENTICATION_REQUIRED:
        return _proved(State.NEEDS_CUSTOMER, code or decline_code or "authentication_required")
    return _proved(State.DECLINED, decline_code or code or "declined")


def _judge_error(operation: Operation, answer: Answer, *, first_send: bool) -> Verdict:
    status = answer.http_status
    if status == 402 and answer.payment_intent is not None:
        return _judge_decline(answer.code, answer.decline_code)
    if status == 400 and answer.error_type == "idempotency_error":
        return _proved(State.REVIEW, "idempotency_error: key and body disagree")
    if status in {401, 403}:
        return _not_executed(Cause.CREDENTIALS, answer.code or f"HTTP {status}")
    if status == 409 and answer.code == "idempotency_key_in_use":
        return _unknown(Cause.KEY_IN_USE, "an earlier send of this key is still running")
    if status == 429:
        cause = Cause.CAP if answer.code == CAP_EXCEEDED else Cause.RATE_LIMITED
        return _not_executed(cause, answer.rate_limited_reason or answer.code or "HTTP 429")
    if _is_refusal(operation, status):
        if first_send:
            return _proved(State.REFUSED, answer.code or f"HTTP {status}")
        return _unknown(Cause.EARLIER_SEND_OPEN, f"HTTP {status} says nothing about earlier sends")
    return _unknown(Cause.SERVER_ERROR, f"HTTP {status}")


def _is_refusal(operation: Operation, status: int | None) -> bool:
    if operation is Operation.CREATE:
        return status in {400, 404}
    return operation is Operation.CONFIRM and status == 400


def _proved(state: State, reason: str) -> Verdict:
    return Verdict(Proof.PROVED, state=state, reason=reason)


def _not_executed(cause: Cause, reason: str) -> Verdict:
    return Verdict(Proof.NOT_EXECUTED, cause=cause, reason=reason)


def _unknown(cause: Cause, reason: str) -> Verdict:
    return Verdict(Proof.UNKNOWN, cause=cause, reason=reason)
