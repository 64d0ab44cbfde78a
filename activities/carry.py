"""Carry a charge as far as it goes now: create, confirm, settle what is unknown, or leave it with a due time.

Pure choreography over `send` and `settle`: every rule about keys and windows lives below this module.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from activities.ledger.charges import ChargeLedger
from activities.limiter import PAUSE_SECONDS_MAX
from activities.send import Sender, Sent
from activities.settle import OPERATION_OF, Settler, Step
from workflows.domain.charge import Charge
from workflows.domain.errors import StaleWrite
from workflows.domain.keys import Operation
from workflows.domain.states import State
from workflows.domain.verdict import Cause, Proof, Verdict

TRIES_MAX = 6  # sends without progress before the charge is left for later
BACKOFF_SECONDS = 0.25
BACKOFF_SECONDS_MAX = 8.0
LATER_SECONDS = 30.0  # doubled with every round that brought nothing
LATER_SECONDS_MAX = 3_600.0
NO_ANSWERS_IN_A_ROW_MAX = 100
_NO_ANSWERS = frozenset({Cause.NO_ANSWER, Cause.UNREACHABLE, Cause.SERVER_ERROR})


class End(StrEnum):
    """How carrying a charge ended."""

    SETTLED = "settled"
    DEFERRED = "deferred"  # it has a due time
    LEFT = "left"  # the worker drains, or the breaker is open: as it is, for the next attempt
    SUPERSEDED = "superseded"  # a newer fence owns it


@dataclass(slots=True)
class Breaker:
    """Stops a whole slice when going on would burn through customers."""

    reason: str | None = None
    no_answers_in_a_row: int = field(default=0)

    def observe(self, verdict: Verdict) -> None:
        """Count what an answer says about the way to Stripe; open on credentials, silence, server errors."""
        if verdict.cause is Cause.CREDENTIALS:
            self.reason = f"Stripe refuses the credentials ({verdict.reason}): mend them, then tick the run"
        elif verdict.cause is Cause.CAP:
            self.reason = "the spend cap is reached: raise it, then tick the run"
        if verdict.cause in _NO_ANSWERS:
            self.no_answers_in_a_row += 1
            if self.no_answers_in_a_row >= NO_ANSWERS_IN_A_ROW_MAX:
                times = f"{self.no_answers_in_a_row} times in a row"
                self.reason = f"no answer of use from Stripe {times} ({verdict.reason})"
        else:
            self.no_answers_in_a_row = 0


class Carrier:
    """Carries the charges of one slice or one settling pass."""

    def __init__(
        self,
        *,
        ledger: ChargeLedger,
        sender: Sender,
        settler: Settler,
        breaker: Breaker,
        is_draining: Callable[[], bool],
    ) -> None:
        self._ledger = ledger
        self._sender = sender
        self._settler = settler
        self._breaker = breaker
        self._is_draining = is_draining

    async def carry(self, charge: Charge) -> End:
        """Carry one claimed charge until it is settled, has a due time, or must be left as it is."""
        fence, tries = charge.fence, 0
        while not charge.is_settled:
            if self._breaker.reason is not None or self._is_draining():
                return End.LEFT
            try:
                step = await self._step(charge)
            except StaleWrite:
                step = Step(await self._ledger.read(charge.charge_id))
                tries += 1
            charge = step.charge
            if charge.fence != fence:
                # Whoever claimed it since owns it: to go on under their fence would defeat it.
                return End.SUPERSEDED
            if step.waiting:
                return End.DEFERRED
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

    async def _step(self, charge: Charge) -> Step:
        match charge.state:
            case State.PLANNED:
                sent = await self._sender.send_first(charge, Operation.CREATE, reason="planned")
            case State.PREPARED:
                sent = await self._sender.send_first(charge, Operation.CONFIRM, reason="prepared")
            case _:
                return await self._settler.settle(charge)
        return Step(sent.charge, sent=sent)

    async def _weigh(self, sent: Sent, tries: int) -> int:
        """Return the new number of tries without progress, after waiting as long as the answer asks for."""
        self._breaker.observe(sent.verdict)
        if sent.verdict.proof is Proof.PROVED and sent.charge.state is sent.verdict.state:
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
