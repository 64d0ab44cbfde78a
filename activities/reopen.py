"""Charging again what ended without success: a charge that a later run took over, or a declined one's retry.

`workflows.domain.reopen` says what comes first; every rule about keys, gates and guards lives below, in the
send path. What a run does beyond the first step is what it does with any charge.
"""

from dataclasses import dataclass, replace

from activities.crash_points import CrashPoint, reach
from activities.ledger.charges import ChargeLedger
from activities.ledger.reopening import History
from activities.send import Sender
from activities.settle import Settler, Step
from workflows.domain.answer import Lookup
from workflows.domain.charge import Charge
from workflows.domain.errors import invariant
from workflows.domain.keys import Operation
from workflows.domain.recovery import CancelFirst, Settled
from workflows.domain.reopen import (
    FirstStep,
    Reopening,
    decide_first_step,
    find_before_create,
    find_still_confirmable,
    rule_on_next_version,
)
from workflows.domain.states import State
from workflows.domain.window import Permission, Ruling

UNANSWERED_SECONDS = 3_600.0  # a retry has days, so an outage need not be asked about every moment


class Reopener:
    """Takes the first step with charges that have been sent before."""

    def __init__(self, *, ledger: ChargeLedger, sender: Sender, settler: Settler) -> None:
        self._ledger = ledger
        self._sender = sender
        self._settler = settler

    async def go_on(self, charge: Charge) -> Step:
        """Take one step with a planned charge that an earlier run had sent something for.

        Or with a prepared one whose earlier PaymentIntent was confirmed: its confirm versions go on, so the
        first confirm of the new one is a next version as well, and waits for a lookup like any.

        Raises:
            StaleWrite: The charge has moved on meanwhile, or its run may begin nothing; read it again.
        """
        history = await self._ledger.reopening.history(charge)
        reopening = decide_first_step(history.keys)
        if reopening.step is FirstStep.CANCEL:
            sent = await self._sender.send_first(charge, Operation.CANCEL, reason=reopening.reason)
            return Step(sent.charge, sent=sent)
        remaining_seconds = reopening.not_before_epoch_seconds - history.now
        if remaining_seconds > 0:
            why = f"charged again, and {reopening.reason}: the window of its newest key has to pass first"
            deferred = await self._ledger.defer(charge, seconds=remaining_seconds, reason=why)
            return Step(deferred, waiting=True, wait_seconds=remaining_seconds)
        if reopening.step is FirstStep.CONFIRM_AGAIN:
            return await self._go_on_with_payment_intent(charge, history, reopening)
        return await self._go_back_to_create(charge, history, reopening)

    async def confirm_again(self, charge: Charge, *, payment_method: str, reason: str) -> Step:
        """Confirm a declined charge's PaymentIntent once more, at the next version, by `payment_method`.

        The step says `waiting`, with the seconds, inside the window of the newest confirm key, where Stripe
        did not answer the lookup, and where a customer is about to pay. What the lookup settles is recorded,
        and nothing is sent. `reason` is kept with the key and the decision.

        Raises:
            StaleWrite: The charge has moved on meanwhile, or its run may begin nothing (a hold, a cancel, a
                close, the newest key's age); read it again.
        """
        invariant(charge.state is State.DECLINED, f"{charge.charge_id} is {charge.state}, and not declined")
        history = await self._ledger.reopening.history(charge)
        again = Reopening(FirstStep.CONFIRM_AGAIN, history.keys.newest_confirm_epoch_seconds, reason)
        remaining_seconds = again.not_before_epoch_seconds - history.now
        if remaining_seconds > 0:
            why = "inside the window of the newest confirm's key"
            return Step(charge, waiting=True, wait_seconds=remaining_seconds, reason=why)
        lookup = await self._retrieve(charge)
        match find_still_confirmable(lookup, charge, was_handed_over=False):
            case Settled(state=State.NEEDS_CUSTOMER, reason=found):
                return Step(charge, waiting=True, reason=found, customer_pays=True)
            case Settled() as settled:
                return Step(await self._settler.apply_settled(charge, lookup, settled))
        ruling = rule_on_next_version(lookup, again)
        if ruling.permission is not Permission.REKEY:
            return await self._leave(charge, ruling, lookup)
        evidence = _Evidence(
            "retried",
            f"{reason}; {ruling.reason}",
            lookup,
            again.newest_key_epoch_seconds,
            history.confirms_determined,
        )
        paying = replace(charge, payment_method=payment_method)
        return await self._send_next(paying, Operation.CONFIRM, evidence)

    async def _leave(self, charge: Charge, ruling: Ruling, lookup: Lookup) -> Step:
        """Leave a declined charge as it is: whoever retries it keeps its due time."""
        if ruling.alarm:
            await self._ledger.note(
                charge, "waiting", ruling.reason, alarm=True, requests=list(lookup.request_ids)
            )
        wait_seconds = ruling.wait_seconds if lookup.complete else UNANSWERED_SECONDS
        return Step(
            charge,
            waiting=True,
            wait_seconds=wait_seconds,
            reason=ruling.reason,
            refusal=lookup.refusal,
        )

    async def _go_on_with_payment_intent(
        self, charge: Charge, history: History, reopening: Reopening
    ) -> Step:
        lookup = await self._retrieve(charge)
        finding = find_still_confirmable(lookup, charge, was_handed_over=history.was_handed_over)
        if isinstance(finding, Settled):
            # One that Stripe has canceled leaves the charge planned: the next step goes back to create.
            return Step(await self._settler.apply_settled(charge, lookup, finding))
        ruling = rule_on_next_version(lookup, reopening)
        if ruling.permission is not Permission.REKEY:
            return await self._settler.wait(charge, ruling, lookup)
        reason = f"charged again, and {reopening.reason}; {ruling.reason}"
        newest = history.keys.newest_confirm_epoch_seconds
        evidence = _Evidence("reopened", reason, lookup, newest, history.confirms_determined)
        return await self._send_next(charge, Operation.CONFIRM, evidence)

    async def _go_back_to_create(self, charge: Charge, history: History, reopening: Reopening) -> Step:
        if history.is_corrected:
            charge = await self._ledger.reopening.apply_correction(charge)
        lookup = await self._settler.lookups.list_since(charge, history.first_create_epoch_seconds)
        reach(CrashPoint.SETTLE_AFTER_LOOKUP)
        match find_before_create(lookup, charge_id=charge.charge_id):
            case Settled() as settled:
                return Step(await self._settler.apply_settled(charge, lookup, settled))
            case CancelFirst(payment_intents=(leftover, *_)):
                taken = await self._ledger.reopening.take_leftover(charge, leftover, lookup.request_ids)
                reach(CrashPoint.SETTLE_AFTER_APPLY)
                return Step(taken)
        ruling = rule_on_next_version(lookup, reopening)
        if ruling.permission is not Permission.REKEY:
            return await self._settler.wait(charge, ruling, lookup)
        reason = f"charged again, and {reopening.reason}; {ruling.reason}"
        newest = history.keys.newest_create_epoch_seconds
        evidence = _Evidence("reopened", reason, lookup, newest, history.creates_determined)
        return await self._send_next(charge, Operation.CREATE, evidence)

    async def _retrieve(self, charge: Charge) -> Lookup:
        lookup = await self._settler.lookups.retrieve(charge)
        reach(CrashPoint.SETTLE_AFTER_LOOKUP)
        return lookup

    async def _send_next(self, charge: Charge, operation: Operation, evidence: "_Evidence") -> Step:
        """Open the operation's next version, with the reason, the age and the lookup in key and decision."""
        sent = await self._sender.send_first(
            charge, operation, reason=evidence.told(), is_alone=evidence.is_alone
        )
        await self._ledger.note(
            charge,
            evidence.decision,
            evidence.reason,
            operation=operation,
            version=charge.version_of(operation) + 1,
            age_seconds=evidence.age_seconds,
            requests=list(evidence.lookup.request_ids),
        )
        return Step(sent.charge, sent=sent)


@dataclass(frozen=True, slots=True)
class _Evidence:
    """Why the next version of an operation may be opened."""

    decision: str
    reason: str
    lookup: Lookup
    newest_epoch_seconds: float | None  # of the version before
    is_alone: bool

    @property
    def age_seconds(self) -> int | None:
        """How old the version before was when Stripe was asked."""
        if self.newest_epoch_seconds is None:
            return None
        return int(self.lookup.started_epoch_seconds - self.newest_epoch_seconds)

    def told(self) -> str:
        """Return all of it in one line: it is frozen with the key, in the transaction that opens it."""
        age = "the first" if self.age_seconds is None else f"the key before is {self.age_seconds} s old"
        requests = ", ".join(self.lookup.request_ids) or "a request without an id"
        return f"{self.reason} ({age}; looked up by {requests})"
