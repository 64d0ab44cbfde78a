"""Whoever finds a charge in flight does the same thing: this.

Ask Stripe what became of it, let `workflows.domain.recovery` say what that means, and apply it under guards.
Where Stripe's books do not settle it, `workflows.domain.window` says whether the key may be sent again, has
to wait, or may be replaced by the next version.
"""

from dataclasses import dataclass, replace

from activities.crash_points import CrashPoint, reach
from activities.gateway.requests import StripeAccount
from activities.gateway.stripe_gateway import StripeGateway
from activities.ledger.charges import ChargeLedger
from activities.limiter import Limiter
from activities.look_up import ChargeLookups
from activities.send import Sender, Sent
from activities.skew_watch import SkewWatch
from workflows.domain.answer import Lookup, PaymentIntent
from workflows.domain.charge import Charge, FrozenKey
from workflows.domain.errors import InvariantViolation
from workflows.domain.follow_up import decline_evidence
from workflows.domain.keys import Operation
from workflows.domain.mode import Mode
from workflows.domain.recovery import (
    Adopt,
    CancelFirst,
    ExpectedIntent,
    Finding,
    NotSettled,
    Settled,
    find_canceled,
    find_confirmed,
    find_created,
)
from workflows.domain.states import State, is_legal, is_surprise
from workflows.domain.window import (
    SAFETY_MARGIN_SECONDS,
    WINDOW_SECONDS,
    Permission,
    Ruling,
    rule,
    rule_on_skew,
)

HELD_SECONDS = 300.0  # between looks at what only a new version could move, while its run is held
OPERATION_OF = {
    State.CREATING: Operation.CREATE,
    State.CONFIRMING: Operation.CONFIRM,
    State.CANCELING: Operation.CANCEL,
}


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What is known of a charge in flight: its newest key, what Stripe shows, how the run stands."""

    frozen: FrozenKey
    age_seconds: float
    lookup: Lookup
    mode: Mode


@dataclass(frozen=True, slots=True)
class Step:
    """What one settling step did: `sent` where a request left, `waiting` where nothing can be done yet.

    `wait_seconds` is for how long then, as far as that is known, and `reason` why. `held` says that only a
    new version could help, which the run's hold forbids; `customer_pays` that its customer is about to pay.
    `refusal` is the code by which the credentials were refused where Stripe was asked, if they were.
    """

    charge: Charge
    sent: Sent | None = None
    waiting: bool = False
    held: bool = False
    wait_seconds: float = 0.0
    reason: str = ""
    refusal: str | None = None
    customer_pays: bool = False


class Settler:
    """Settles charges in flight, one at a time."""

    def __init__(
        self,
        *,
        ledger: ChargeLedger,
        gateway: StripeGateway,
        limiter: Limiter,
        sender: Sender,
        account: StripeAccount,
        skew: SkewWatch,
    ) -> None:
        self._ledger = ledger
        self._sender = sender
        self._skew = skew
        self.lookups = ChargeLookups(
            ledger=ledger, gateway=gateway, limiter=limiter, account=account, skew=skew
        )

    async def settle(self, charge: Charge, mode: Mode = Mode.NORMAL) -> Step:
        """Take one step with a charge in `creating`, `confirming` or `canceling`.

        Outside of the normal mode no new version of a create or confirm is opened: of a held run the charge
        is left, of one that is being canceled it is canceled where nothing of it is or can be at Stripe.

        Raises:
            StaleWrite: The charge has moved on meanwhile; read it again.
        """
        operation = OPERATION_OF[charge.state]
        frozen, now = await self._ledger.frozen_key(charge.key_of(operation, charge.version_of(operation)))
        age_seconds = now - frozen.first_intended_epoch_seconds
        if mode is Mode.CANCELING and operation is Operation.CREATE and frozen.open_sends == 0:
            unsent = await self._ledger.cancel_unsent(charge)
            if unsent is not None:
                return Step(unsent)
        resendable = age_seconds < WINDOW_SECONDS - SAFETY_MARGIN_SECONDS and self._skew.rule() is None
        if frozen.open_sends == 0 and resendable:
            # The journal itself says that no send of this key was executed: there is nothing to look up.
            sent = await self._sender.send_again(charge, frozen, reason="no send of this key was executed")
            return Step(sent.charge, sent=sent)
        lookup = await self._look_up(charge, operation, frozen)
        reach(CrashPoint.SETTLE_AFTER_LOOKUP)
        evidence = _Evidence(frozen, age_seconds, lookup, mode)
        return await self._apply(charge, evidence, await self._find(charge, operation, evidence))

    async def look_at_clocks(self, charge: Charge) -> None:
        """Ask Stripe something small about a charge's customer, for the time of the answer alone."""
        await self.lookups.look_at_clocks(charge)

    async def _look_up(self, charge: Charge, operation: Operation, frozen: FrozenKey) -> Lookup:
        if operation is Operation.CREATE:
            return await self.lookups.list_since(charge, frozen.charge_first_intended_epoch_seconds)
        return await self.lookups.retrieve(charge)

    async def _find(self, charge: Charge, operation: Operation, evidence: _Evidence) -> Finding:
        frozen, lookup = evidence.frozen, evidence.lookup
        window_passed = evidence.age_seconds >= WINDOW_SECONDS
        match operation:
            case Operation.CREATE:
                return find_created(
                    lookup,
                    ExpectedIntent(
                        charge_id=charge.charge_id,
                        create_key=frozen.key,
                        amount_minor=charge.amount_minor,
                        currency=charge.currency,
                        customer=charge.customer,
                    ),
                    cancel_intended=await self._ledger.cancel_intended(charge.charge_id),
                    window_passed=window_passed,
                )
            case Operation.CONFIRM:
                return find_confirmed(
                    lookup,
                    payment_intent_id=charge.payment_intent or "",
                    latest_charge_before=frozen.latest_charge_before,
                    window_passed=window_passed,
                    key_answered=frozen.answered,
                )
            case Operation.CANCEL:
                return find_canceled(lookup, payment_intent_id=charge.payment_intent or "")
            case Operation.REFUND:
                raise InvariantViolation("a refund is not settled as a charge")

    async def _apply(self, charge: Charge, evidence: _Evidence, finding: Finding) -> Step:
        lookup, canceling = evidence.lookup, evidence.mode is Mode.CANCELING
        match finding:
            case Settled():
                return Step(await self.apply_settled(charge, lookup, finding))
            case Adopt(payment_intent=found, reason=reason):
                skewed = rule_on_skew(lookup.skew_seconds)
                if skewed is not None and not canceling:
                    # An adopted charge is confirmed next, which is a send: with such a clock nothing is sent.
                    return await self.wait(charge, skewed, lookup, finding=reason)
                adopted = await self._ledger.settle(
                    charge,
                    State.PREPARED,
                    payment_intent=found.id,
                    latest_charge=found.latest_charge,
                    reason=reason,
                    decision="adopted",
                    requests=list(lookup.request_ids),
                )
                reach(CrashPoint.SETTLE_AFTER_APPLY)
                return Step(adopted)
            case CancelFirst(payment_intents=leftovers) if canceling:
                return Step(await self._adopt_to_cancel(charge, leftovers))
            case CancelFirst(payment_intents=leftovers, reason=reason):
                # They may belong to a create that is still rolling forward, so this is for people to look at.
                return await self.wait(
                    charge,
                    Ruling(Permission.WAIT, reason, wait_seconds=3600, alarm=True),
                    lookup,
                    leftovers=[intent.id for intent in leftovers],
                )
            case NotSettled(reason=reason):
                return await self._go_by_window(charge, evidence, reason)

    async def _adopt_to_cancel(self, charge: Charge, leftovers: tuple[PaymentIntent, ...]) -> Charge:
        """Take an earlier version's PaymentIntent as the charge's own: it can only be canceled any more."""
        first, *others = leftovers
        return await self._ledger.settle(
            charge,
            State.PREPARED,
            payment_intent=first.id,
            latest_charge=first.latest_charge,
            reason="an earlier version's PaymentIntent, to be canceled",
            decision="adopted_to_cancel",
            alarm=bool(others),
            others_left_open=[other.id for other in others],
        )

    async def apply_settled(self, charge: Charge, lookup: Lookup, finding: Settled) -> Charge:
        """Record what a lookup settled, or that people must look at it.

        Raises:
            StaleWrite: The charge has moved on meanwhile (I14).
        """
        state, reason = finding.state, finding.reason
        found = finding.payment_intent
        got = (found.amount_minor, found.currency)
        if state is not State.CANCELED and got != (charge.amount_minor, charge.currency):
            state, reason = State.REVIEW, f"{reason}, but {found.id} is of {got}"
        elif charge.payment_intent not in {None, found.id}:
            state, reason = State.REVIEW, f"{reason}: {found.id}, beside the charge's own"
        elif not is_legal(charge.state, state):
            state, reason = State.REVIEW, f"{reason}, which can't follow {charge.state}"
        alarm = state is State.REVIEW or is_surprise(charge.state, state) or "DUPLICATE" in finding.reason
        settled = await self._ledger.settle(
            charge,
            state,
            payment_intent=found.id,
            latest_charge=found.latest_charge,
            reason=reason,
            alarm=alarm,
            requests=list(lookup.request_ids),
            **decline_evidence(found, charge.confirm_version) if state is State.DECLINED else {},
        )
        reach(CrashPoint.SETTLE_AFTER_APPLY)
        return settled

    async def _go_by_window(self, charge: Charge, evidence: _Evidence, finding: str) -> Step:
        frozen, lookup, mode = evidence.frozen, evidence.lookup, evidence.mode
        age_seconds = evidence.age_seconds
        ruling = rule(
            age_seconds=age_seconds,
            lookup_age_seconds=age_seconds if lookup.complete else None,
            skew_seconds=lookup.skew_seconds,
            stored_failure=frozen.stored_failure,
        )
        match ruling.permission:
            case Permission.WAIT:
                return await self.wait(charge, ruling, lookup, finding=finding)
            case Permission.RESEND:
                sent = await self._sender.send_again(charge, frozen, reason=f"{finding}; {ruling.reason}")
            case Permission.REKEY if mode is Mode.HELD and frozen.operation is not Operation.CANCEL:
                wait = f"{finding}; the window has passed, and the run is held: no new version"
                return Step(await self._ledger.defer(charge, seconds=HELD_SECONDS, reason=wait), held=True)
            case Permission.REKEY if mode is Mode.CANCELING and frozen.operation is Operation.CREATE:
                return Step(await self._cancel_unfound(charge, lookup, age_seconds))
            case Permission.REKEY:
                reason = f"{finding}; {ruling.reason}"
                sent = await self._sender.send_first(
                    _as_frozen(charge, frozen), frozen.operation, reason=reason
                )
                await self._ledger.note(
                    charge,
                    "rekeyed",
                    reason,
                    operation=frozen.operation,
                    version=frozen.version + 1,
                    age_seconds=round(age_seconds),
                    requests=list(lookup.request_ids),
                )
        return Step(sent.charge, sent=sent)

    async def _cancel_unfound(self, charge: Charge, lookup: Lookup, age_seconds: float) -> Charge:
        """No confirm was ever intended for this create, and past its window it is nowhere at Stripe."""
        canceled = await self._ledger.settle(
            charge,
            State.CANCELED,
            payment_intent=None,
            latest_charge=None,
            reason="canceled with the run: past the window Stripe has no PaymentIntent of it",
            decision="canceled_unfound",
            age_seconds=round(age_seconds),
            requests=list(lookup.request_ids),
        )
        reach(CrashPoint.SETTLE_AFTER_APPLY)
        return canceled

    async def wait(self, charge: Charge, ruling: Ruling, lookup: Lookup, **evidence: object) -> Step:
        """Give the charge the due time that a ruling asks for, and record why.

        Raises:
            StaleWrite: Another sender has claimed the charge.
        """
        deferred = await self._ledger.defer(charge, seconds=ruling.wait_seconds, reason=ruling.reason)
        await self._ledger.note(
            charge,
            "waiting",
            ruling.reason,
            alarm=ruling.alarm,
            wait_seconds=round(ruling.wait_seconds),
            lookup_failure=lookup.failure,
            requests=list(lookup.request_ids),
            **evidence,
        )
        return Step(
            deferred,
            waiting=True,
            wait_seconds=ruling.wait_seconds,
            reason=ruling.reason,
            refusal=lookup.refusal,
        )


def _as_frozen(charge: Charge, frozen: FrozenKey) -> Charge:
    """The next version of a confirm pays as the newest did: a retry may have had another card."""
    if frozen.operation is not Operation.CONFIRM:
        return charge
    return replace(charge, payment_method=frozen.payment_method)
