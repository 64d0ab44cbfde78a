"""Carry a charge as far as it goes now: create, confirm, settle what is unknown, or leave it with a due time.

Pure choreography over `send` and `settle`: every rule about keys and windows lives below this module.
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum

from activities.ledger.charges import ChargeLedger
from activities.limiter import PAUSE_SECONDS_MAX
from activities.reopen import Reopener
from activities.run_watch import RunWatch
from activities.send import Sender, Sent
from activities.settle import OPERATION_OF, Settler, Step
from activities.skew_watch import SkewWatch
from workflows.domain.breaker import Breaker, describe_credentials
from workflows.domain.charge import Charge
from workflows.domain.errors import StaleWrite
from workflows.domain.keys import Operation
from workflows.domain.mode import Mode
from workflows.domain.states import NOT_STARTED, State
from workflows.domain.verdict import Cause, Proof
from workflows.domain.window import Ruling

TRIES_MAX = 6  # sends without progress before the charge is left for later
BACKOFF_SECONDS = 0.25
BACKOFF_SECONDS_MAX = 8.0
LATER_SECONDS = 30.0  # doubled with every round that brought nothing
LATER_SECONDS_MAX = 3_600.0


class End(StrEnum):
    """How carrying a charge ended."""

    SETTLED = "settled"
    DEFERRED = "deferred"  # it has a due time
    HELD = "held"  # its run may begin nothing new: as it is, for whoever comes after the hold
    LEFT = "left"  # the worker drains, or the breaker is open: as it is, for the next attempt
    SUPERSEDED = "superseded"  # a newer fence owns it


class Carrier:
    """Carries the charges of one slice or one settling pass."""

    def __init__(
        self,
        *,
        ledger: ChargeLedger,
        sender: Sender,
        settler: Settler,
        breaker: Breaker,
        watch: RunWatch,
        skew: SkewWatch,
        is_draining: Callable[[], bool],
    ) -> None:
        self._ledger = ledger
        self._sender = sender
        self._settler = settler
        self._reopener = Reopener(ledger=ledger, sender=sender, settler=settler)
        self._breaker = breaker
        self._watch = watch
        self._skew = skew
        self._is_draining = is_draining
        self._alarmed_of_skew = False

    async def carry(self, charge: Charge) -> End:
        """Carry one claimed charge until it is settled, has a due time, or must be left as it is."""
        fence, tries = charge.fence, 0
        while not charge.is_settled:
            mode = self._watch.mode
            if (end := await self._stop(charge, mode)) is not None:
                return end
            try:
                step = await self._step(charge, mode)
            except StaleWrite:
                # Another sender has the charge, or a decision about the run forbids what was about to begin.
                await self._watch.refresh()
                step = Step(await self._ledger.read(charge.charge_id))
                tries += 1
            charge = step.charge
            if charge.fence != fence:
                # Whoever claimed it since owns it: to go on under their fence would defeat it.
                return End.SUPERSEDED
            if step.refusal is not None:
                self._breaker.refuse(describe_credentials(step.refusal))
            if step.held or step.waiting:
                return End.HELD if step.held else End.DEFERRED
            if step.sent is not None:
                asked_seconds = step.sent.answer.retry_after_seconds or 0.0
                if asked_seconds > PAUSE_SECONDS_MAX and not charge.is_settled:
                    self._breaker.observe(step.sent.verdict)
                    # Hours are no pause: as a due time they have a reason, and outlive this worker.
                    return await self._defer(
                        charge, asked_seconds, f"Stripe asks to wait {asked_seconds:.0f} s"
                    )
                tries = await self._weigh(step.sent, tries)
            if tries >= TRIES_MAX and not charge.is_settled:
                return await self._leave_for_later(charge)
        return End.SETTLED

    async def _stop(self, charge: Charge, mode: Mode) -> End | None:
        """Return how carrying ends before another step is taken, or None where one may be."""
        if self._breaker.reason is not None or self._is_draining():
            return End.LEFT
        if charge.state not in NOT_STARTED or mode is Mode.CANCELING:
            return None
        if mode is Mode.HELD:
            return End.HELD
        skewed = await self._rule_on_clocks(charge)
        return None if skewed is None else await self._defer(charge, skewed.wait_seconds, skewed.reason)

    async def _step(self, charge: Charge, mode: Mode) -> Step:
        canceling = mode is Mode.CANCELING
        match charge.state:
            case State.PLANNED if canceling:
                unsent = await self._ledger.cancel_unsent(charge)
                if unsent is not None:
                    return Step(unsent)
                if charge.payment_intent is None:
                    raise StaleWrite(f"charge {charge.charge_id} is no longer only planned")
                # An earlier run made its PaymentIntent, and may have tried to confirm it: Stripe decides.
                sent = await self._sender.send_first(charge, Operation.CANCEL, reason="the run is canceled")
            case State.PLANNED if charge.create_version:
                return await self._reopener.go_on(charge)
            case State.PLANNED:
                sent = await self._sender.send_first(charge, Operation.CREATE, reason="planned")
            case State.PREPARED | State.CONFIRMING if canceling:
                sent = await self._sender.send_first(charge, Operation.CANCEL, reason="the run is canceled")
            case State.PREPARED if charge.confirm_version:
                return await self._reopener.go_on(charge)
            case State.PREPARED:
                sent = await self._sender.send_first(charge, Operation.CONFIRM, reason="prepared")
            case _:
                return await self._settler.settle(charge, mode)
        return Step(sent.charge, sent=sent)

    async def _rule_on_clocks(self, charge: Charge) -> Ruling | None:
        """Return the wait that ledger's and Stripe's clocks impose on a first send (I10), or None.

        An answer that showed them apart is not the last word: a lookup, one a second for all, asks again.
        """
        if self._skew.rule() is None:
            return None
        async with self._skew.looking:
            if self._skew.rule() is not None and self._skew.may_look():
                await self._settler.look_at_clocks(charge)
        ruling = self._skew.rule()
        if ruling is not None and not self._alarmed_of_skew:
            self._alarmed_of_skew = True
            await self._ledger.note(
                charge, "waiting", f"{ruling.reason}: no first sends in this pass", alarm=True
            )
        return ruling

    async def _weigh(self, sent: Sent, tries: int) -> int:
        """Return the new number of tries without progress, after waiting as long as the answer asks for."""
        self._breaker.observe(sent.verdict)
        makes_way = sent.verdict.state is State.CANCELED and sent.charge.state is State.PLANNED
        if sent.verdict.proof is Proof.PROVED and (sent.charge.state is sent.verdict.state or makes_way):
            return 0  # anything else that was proved did not pass the ledger's guards: no progress
        if sent.verdict.proof is Proof.OUTDATED or sent.verdict.cause is Cause.STORED_FAILURE:
            return tries + 1  # nothing to wait for: the next step is a lookup
        pause_seconds = min(BACKOFF_SECONDS * 2**tries, BACKOFF_SECONDS_MAX)
        await asyncio.sleep(sent.answer.retry_after_seconds or pause_seconds)
        return tries + 1

    async def _leave_for_later(self, charge: Charge) -> End:
        rounds = 1
        if charge.is_in_flight:
            operation = OPERATION_OF[charge.state]
            frozen, _ = await self._ledger.frozen_key(charge.key_of(operation, charge.version_of(operation)))
            rounds = max(1, frozen.sends // TRIES_MAX)
        seconds = min(LATER_SECONDS * 2.0 ** (rounds - 1), LATER_SECONDS_MAX)
        return await self._defer(charge, seconds, charge.reason or "no determined answer yet")

    async def _defer(self, charge: Charge, seconds: float, reason: str) -> End:
        try:
            await self._ledger.defer(charge, seconds=seconds, reason=reason)
        except StaleWrite:
            return End.SUPERSEDED
        return End.DEFERRED
