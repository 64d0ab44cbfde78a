"""The one path on which anything is sent: intent committed, request, answer committed.

No transaction is open across the request. Whoever dies in between leaves an intent without an answer, which
is what `activities.settle` looks for.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from activities.crash_points import CrashPoint, reach
from activities.gateway.calls import boottime_seconds
from activities.gateway.requests import (
    Request,
    StripeAccount,
    cancel_request,
    confirm_request,
    create_request,
)
from activities.gateway.stripe_gateway import StripeGateway
from activities.ledger.charges import ChargeLedger, FirstSend, Resend
from activities.limiter import Endpoint, Limiter
from activities.skew_watch import SkewWatch, skew_of_send
from workflows.domain.answer import Answer
from workflows.domain.charge import Charge, FrozenKey, Intent, Outcome
from workflows.domain.errors import InvariantViolation, invariant
from workflows.domain.keys import ChargeId, Operation, canonical_parameters
from workflows.domain.states import State
from workflows.domain.verdict import Cause, Proof, Verdict, judge

LEAVE_WITHIN_SECONDS = 5.0  # I6: a request leaves this soon after its intent, or not at all

_POINTS = {
    operation: {
        moment: CrashPoint(f"{operation}_{moment}")
        for moment in (
            "before_intent",
            "after_intent",
            "before_request",
            "after_request",
            "before_record",
            "after_record",
        )
    }
    for operation in (Operation.CREATE, Operation.CONFIRM, Operation.CANCEL)
}


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one send: the charge as it is now, and what the answer proved."""

    charge: Charge
    answer: Answer
    verdict: Verdict


class Sender:
    """Sends operations of one account's charges."""

    def __init__(
        self,
        *,
        ledger: ChargeLedger,
        gateway: StripeGateway,
        limiter: Limiter,
        account: StripeAccount,
        places: asyncio.Semaphore,
        skew: SkewWatch,
    ) -> None:
        """Put the parts together; `places` bounds the account's sends between intent and answer."""
        self._ledger = ledger
        self._gateway = gateway
        self._limiter = limiter
        self._account = account
        # Taken before the intent: one that then waited for a connection would be too late to leave.
        self._places = places
        self._skew = skew

    async def send_first(
        self, charge: Charge, operation: Operation, *, reason: str, is_alone: bool = False
    ) -> Sent:
        """Freeze a new key of `operation` and send it once.

        `is_alone` says that every send of an earlier version has its answer: a refusal is one of the whole.

        Raises:
            StaleWrite: The charge has moved on, its run may not begin this, its previous key's window has not
                passed, or its PaymentIntent was not shown to be canceled.
        """
        request = request_for(charge, operation)
        send = FirstSend(
            charge=charge,
            operation=operation,
            path=request.path,
            parameters=canonical_parameters(request.parameters),
            reason=reason,
            is_alone=is_alone,
        )
        return await self.send_intended(operation, lambda: self._ledger.intend_first(send))

    async def send_again(self, charge: Charge, frozen: FrozenKey, *, reason: str) -> Sent:
        """Send a frozen key once more, path and body as they were stored.

        Raises:
            StaleWrite: The charge has moved on, or the key is too old to be resent.
        """
        resend = Resend(charge=charge, frozen=frozen, reason=reason)
        return await self.send_intended(frozen.operation, lambda: self._ledger.intend_again(resend))

    async def send_intended(self, operation: Operation, intend: Callable[[], Awaitable[Intent]]) -> Sent:
        """Send once what `intend` commits; what it raises is raised, and nothing was sent."""
        await self._limiter.acquire(Endpoint(operation))
        async with self._places:
            leave_by = _leave_by()
            _reach(operation, "before_intent")
            intent = await intend()
            answer = await self._transmit(intent, leave_by)
        return await self._record(intent, answer)

    async def _transmit(self, intent: Intent, leave_by: float) -> Answer:
        operation, began_seconds = intent.operation, boottime_seconds()
        _reach(operation, "after_intent")
        parameters = json.loads(intent.parameters)
        _reach(operation, "before_request")
        answer = await self._gateway.post(
            operation,
            account=self._account,
            path=intent.path,
            parameters=parameters,
            key=intent.key,
            leave_by_boottime_seconds=leave_by,
        )
        skew_seconds = skew_of_send(
            intended_epoch_seconds=intent.intended_epoch_seconds,
            elapsed_seconds=boottime_seconds() - began_seconds,
            stripe_epoch_seconds=answer.stripe_epoch_seconds,
        )
        self._skew.observe(skew_seconds, began_seconds=began_seconds)
        _reach(operation, "after_request")
        return answer

    async def _record(self, intent: Intent, answer: Answer) -> Sent:
        operation = intent.operation
        verdict = _check_against_intent(
            intent, answer, judge(operation, answer, first_send=intent.first_send)
        )
        if verdict.cause is Cause.RATE_LIMITED:
            self._limiter.slow_down(
                Endpoint(operation),
                retry_after_seconds=answer.retry_after_seconds,
                reason=answer.rate_limited_reason or answer.code,
            )
        _reach(operation, "before_record")
        charge = await self._ledger.record(Outcome(intent=intent, answer=answer, verdict=verdict))
        _reach(operation, "after_record")
        return Sent(charge=charge, answer=answer, verdict=verdict)


def request_for(charge: Charge, operation: Operation) -> Request:
    """Return what the next version of an operation sends: its key is frozen with this."""
    match operation:
        case Operation.CREATE:
            invariant(
                charge.payment_method, f"charge {charge.charge_id} was planned without a payment method"
            )
            return create_request(
                amount_minor=charge.amount_minor,
                currency=charge.currency,
                customer=charge.customer,
                payment_method=charge.payment_method or "",
                charge_id=ChargeId(charge.charge_id),
                create_key=charge.key_of(operation, charge.create_version + 1),
                period=charge.period,
                line=charge.line,
                run=charge.run_id,
                description=charge.description,
            )
        case Operation.CONFIRM:
            invariant(charge.payment_intent, f"charge {charge.charge_id} has no PaymentIntent to confirm")
            return confirm_request(charge.payment_intent or "", charge.payment_method or "")
        case Operation.CANCEL:
            invariant(charge.payment_intent, f"charge {charge.charge_id} has no PaymentIntent to cancel")
            return cancel_request(charge.payment_intent or "")
        case Operation.REFUND:
            raise InvariantViolation("a refund is not sent for a charge's state")


def _check_against_intent(intent: Intent, answer: Answer, verdict: Verdict) -> Verdict:
    """A PaymentIntent that is not what was asked for must never be confirmed or counted: review it."""
    found, charge = answer.payment_intent, intent.charge
    if found is None or verdict.proof is not Proof.PROVED:
        return verdict
    wrong_intent = intent.operation is not Operation.CREATE and found.id != charge.payment_intent
    if intent.operation is Operation.CANCEL and verdict.state is State.CANCELED and not wrong_intent:
        return verdict  # whatever it was about, it can never succeed
    asked = (charge.amount_minor, charge.currency, charge.customer)
    got = (found.amount_minor, found.currency, found.customer)
    if asked != got or wrong_intent:
        return Verdict(Proof.PROVED, state=State.REVIEW, reason=f"Stripe answered with {found.id}: {got}")
    return verdict


def _leave_by() -> float:
    # Read before the commit: a process frozen inside the commit thaws with a time that is long past.
    return boottime_seconds() + LEAVE_WITHIN_SECONDS


def _reach(operation: Operation, moment: str) -> None:
    reach(_POINTS[operation][moment])
