"""One step of one follow-up: send a retry, ask about a customer or a debit, and book what came of it."""

from dataclasses import dataclass, replace
from enum import StrEnum

from activities.ledger.follow_ups import Followed, FollowUpLedger
from activities.payment_methods import PaymentMethods
from activities.reopen import Reopener
from activities.run_watch import RunWatch
from activities.send import Sender
from activities.settle import Settler
from workflows.domain.breaker import Breaker, describe_credentials
from workflows.domain.errors import CredentialsRefused, NothingWasSent, StaleWrite
from workflows.domain.follow_up import (
    WAITS_ON,
    End,
    Kind,
    Outcome,
    Wait,
    find_later,
    go_on,
)
from workflows.domain.keys import Operation
from workflows.domain.mode import Mode
from workflows.domain.recovery import Settled
from workflows.domain.retry_policy import Method, RetryPolicy
from workflows.domain.skips import SkipReason
from workflows.domain.states import State

AGAIN_SECONDS = 3_600.0  # after Stripe has not said what was asked

_MAY_STILL_HAVE_IT = {SkipReason.NO_PAYMENT_METHOD, SkipReason.SEVERAL_PAYMENT_METHODS}


class Done(StrEnum):
    """What became of a follow-up in one pass."""

    WENT_ON = "went_on"
    PUT_OFF = "put_off"
    LEFT = "left"  # as it is: it is held, in flight, or somebody else's by now


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUpStep:
    """Takes follow-ups of one run one step on."""

    ledger: FollowUpLedger
    sender: Sender
    settler: Settler
    reopener: Reopener
    methods: PaymentMethods
    policy: RetryPolicy
    watch: RunWatch
    breaker: Breaker

    async def take(self, followed: Followed) -> Done:
        """Take one claimed follow-up one step on."""
        kind, charge = followed.follow_up.kind, followed.charge
        try:
            if charge.state is not WAITS_ON[kind]:
                return await self._book(followed)
            if kind is not Kind.RETRY:
                return await self._look(followed)
            if self.watch.mode is Mode.CANCELING:
                return await self._end(followed, End(Outcome.RUN_CANCELED, "the run is canceled"))
            if followed.step > followed.follow_up.step:
                return await self._book(followed)  # sent, and declined, before this pass
            return await self._retry(followed)
        except StaleWrite:
            # Somebody else has the charge, or a decision about the run forbids what was about to begin.
            await self.watch.refresh()
            return Done.LEFT

    async def _look(self, followed: Followed) -> Done:
        """Ask Stripe about a customer or a debit."""
        charge = followed.charge
        lookup = await self.settler.lookups.retrieve(charge)
        if lookup.refusal is not None:
            return self._refuse(describe_credentials(lookup.refusal))
        if not lookup.complete:
            return await self._put_off(followed, AGAIN_SECONDS, f"Stripe does not say: {lookup.failure}")
        finding = find_later(lookup, payment_intent_id=charge.payment_intent or "", state=charge.state)
        if isinstance(finding, Settled):
            await self.settler.apply_settled(charge, lookup, finding)
        elif self.watch.mode is Mode.CANCELING:
            reason = f"the run is canceled; {finding.reason}"
            return await self._end(followed, End(Outcome.RUN_CANCELED, reason))
        return await self._book(await self.ledger.read(followed.follow_up.follow_up_id))

    async def _retry(self, followed: Followed) -> Done:
        if isinstance(self._next(followed), End):
            return await self._book(followed)
        try:
            payment_method, why = await self._resolve(followed)
        except CredentialsRefused as refusal:
            return self._refuse(str(refusal))
        except NothingWasSent as failure:
            return await self._put_off(followed, AGAIN_SECONDS, str(failure))
        if payment_method is None:
            return await self._book(replace(followed, step=followed.step + 1), because=why)
        step = await self.reopener.confirm_again(
            followed.charge,
            payment_method=payment_method,
            reason=f"retry {followed.step + 1} after {followed.decline}, {why}",
        )
        if step.sent is not None:
            self.breaker.observe(step.sent.verdict)
        if step.refusal is not None:
            return self._refuse(describe_credentials(step.refusal))
        if step.customer_pays:
            # Begun and perhaps never finished: the retries go on passing, or the run would wait for ever.
            return await self._book(
                replace(followed, step=followed.step + 1), because=f"passed over: {step.reason}"
            )
        if step.waiting:
            reason = f"it can not be confirmed again yet: {step.reason}"
            return await self._put_off(followed, step.wait_seconds, reason)
        return await self._book(await self.ledger.read(followed.follow_up.follow_up_id))

    async def _resolve(self, followed: Followed) -> tuple[str | None, str]:
        """Return what the retry pays with, and why; None where this one is passed over.

        Raises:
            CredentialsRefused: The key does not open what has to be asked.
            NothingWasSent: Stripe does not say how the customer pays.
        """
        rule, customer = self.policy.rule_for(followed.decline), followed.charge.customer
        before = followed.confirmed_with or followed.charge.payment_method or ""
        if rule.payment_method is Method.SAME:
            return await self._keep(customer, before, f"by rule {rule.name!r} with the same payment method")
        found = await self.methods.find(customer)
        if found.payment_method is not None and found.payment_method != before:
            return found.payment_method, f"by rule {rule.name!r} with the customer's new payment method"
        if found.payment_method is None and found.reason not in _MAY_STILL_HAVE_IT:
            return None, f"passed over: {found.reason}{f', {found.detail}' if found.detail else ''}"
        if rule.payment_method is Method.REPLACED:
            return None, "passed over: the customer has no other payment method yet"
        why = f"by rule {rule.name!r} with the payment method that the customer still has"
        if found.payment_method is not None:
            return before, why
        return await self._keep(customer, before, why)  # no card, or several: what it was may be another type

    async def _keep(self, customer: str, before: str, why: str) -> tuple[str | None, str]:
        """Return the payment method before where the customer has it yet.

        One that is gone would be refused, which ends a charge and takes along the retries that are left.
        """
        attached = await self.methods.find_attached(customer, before)
        if attached.payment_method is None:
            return None, f"passed over: the payment method before is not the customer's ({attached.reason})"
        return before, why

    def _refuse(self, reason: str) -> Done:
        """Leave it as it is, for when the run goes on: only a person mends credentials."""
        self.breaker.refuse(reason)
        return Done.LEFT

    async def _book(self, followed: Followed, *, because: str | None = None) -> Done:
        """Write down what comes next, as the charge stands."""
        charge, kind = followed.charge, followed.follow_up.kind
        if charge.is_in_flight:
            return Done.WENT_ON  # settling comes first; then it is due again
        found = self._next(followed)
        if because is not None:
            found = replace(found, reason=f"{because}; {found.reason}")
        match found:
            case End() as end:
                return await self._end(followed, end)
            case Wait() as wait if wait.kind is kind:
                await self.ledger.advance(followed, wait)
            case Wait() as wait:
                await self.ledger.end(followed, End(charge.state, f"it is {charge.state}"), then=wait)
        return Done.WENT_ON

    def _next(self, followed: Followed) -> Wait | End:
        return go_on(
            self.policy,
            followed.follow_up,
            followed.charge.state,
            followed.decline,
            changed_at=followed.changed_at,
            now=followed.now,
            step=followed.step,
        )

    async def _end(self, followed: Followed, end: End) -> Done:
        """Wait no longer. Nothing is declined for good while a confirm of it may still pay (I12, T10)."""
        charge = followed.charge
        if charge.state is State.DECLINED and followed.undetermined:
            reason = f"{end.reason}; a confirm of it never got its answer, so nothing may be paid any more"
            sent = await self.sender.send_first(charge, Operation.CANCEL, reason=reason)
            self.breaker.observe(sent.verdict)
            return Done.WENT_ON
        await self.ledger.end(followed, end)
        return Done.WENT_ON

    async def _put_off(self, followed: Followed, seconds: float, reason: str) -> Done:
        await self.ledger.postpone(followed, seconds=seconds, reason=reason)
        return Done.PUT_OFF
