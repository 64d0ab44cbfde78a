"""One look at Stripe for a charge that nobody of ours asked about, applied under the row's guards.

The row is read before Stripe is asked, and what was found applies only to that row (invariant I14): if
anything moved meanwhile, the look is worth nothing and is made again. No transaction is open while Stripe
answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from activities.accounts import AccountParts
from activities.gateway.requests import StripeAccount
from activities.ledger.charges import ChargeLedger
from activities.ledger.inbox import InboxLedger
from activities.ledger.money_back import MoneyBackLedger
from activities.limiter import Endpoint
from workflows.domain.answer import PaymentIntent
from workflows.domain.charge import Charge
from workflows.domain.errors import StaleWrite
from workflows.domain.follow_up import decline_evidence
from workflows.domain.merge import About, Alarm, Apply, Merge, Nothing, merge
from workflows.domain.states import State

LOOKS_MAX = 3  # at a row that moves whenever it is looked at
EVENTS_NAMED_MAX = 20


class LookEnd(StrEnum):
    """How looking ended."""

    MERGED = "merged"
    NOT_OURS = "not_ours"
    UNMATCHED = "unmatched"
    ABSENT = "absent"  # Stripe says that there is no such object
    AWAY = "away"  # Stripe did not answer, or not in full
    MOVED = "moved"  # the row went on moving


@dataclass(frozen=True, slots=True)
class Subject:
    """One object to look at, with the reasons: what its events are about, and their ids."""

    payment_intent: str
    charge_id: str | None
    """The identity that events claim; a look decides."""
    abouts: frozenset[About]
    event_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """What one look came to."""

    end: LookEnd
    reason: str


class Merger:
    """Looks at objects of one account and merges what it sees."""

    def __init__(
        self,
        parts: AccountParts,
        *,
        charges: ChargeLedger,
        inbox: InboxLedger,
        money_back: MoneyBackLedger,
    ) -> None:
        self._account: StripeAccount = parts.account
        self._gateway = parts.gateway
        self._limiter = parts.limiter
        self._charges = charges
        self._inbox = inbox
        self._money_back = money_back

    async def look(self, subject: Subject) -> Look:
        """Ask Stripe for the object as it is now, and merge it into its charge."""
        charge_id = subject.charge_id
        for _ in range(LOOKS_MAX):
            row = await self._read(charge_id)
            number = await self._money_back.next_look()
            found, look = await self._retrieve(subject.payment_intent)
            if found is None:
                return look
            if found.charge_id is None:
                return Look(LookEnd.NOT_OURS, f"{found.id} carries no identity of ours")
            if found.charge_id != charge_id:
                charge_id = found.charge_id
                row = await self._read(charge_id)
                if row is not None and not isinstance(merge(row, found), Nothing):
                    continue  # the row was read after the look: look again
            if row is None:
                return Look(LookEnd.UNMATCHED, f"the ledger has no charge {charge_id}")
            try:
                reason = await self._apply(row, merge(row, found), subject)
            except StaleWrite:
                continue
            return await self._look_at_money_back(row, subject, number, reason)
        return Look(LookEnd.MOVED, f"the charge moved during {LOOKS_MAX} looks at Stripe")

    async def _read(self, charge_id: str | None) -> Charge | None:
        if charge_id is None:
            return None
        return (await self._inbox.read_charges([charge_id])).get(charge_id)

    async def _retrieve(self, payment_intent: str) -> tuple[PaymentIntent | None, Look]:
        await self._limiter.acquire(Endpoint.RETRIEVE)
        # Only ages need the ledger's clock, and nothing here has one.
        lookup = await self._gateway.retrieve_payment_intent(
            self._account, payment_intent, started_epoch_seconds=0.0
        )
        if lookup.complete:
            return lookup.payment_intents[0], Look(LookEnd.MERGED, "")
        failure = lookup.failure or "no answer"
        self._heed_rate(Endpoint.RETRIEVE, failure)
        if failure.startswith("HTTP 404"):
            return None, Look(LookEnd.ABSENT, f"Stripe does not show {payment_intent}: {failure}")
        return None, Look(LookEnd.AWAY, f"Stripe was asked for {payment_intent}: {failure}")

    async def _apply(self, row: Charge, merged: Merge, subject: Subject) -> str:
        events = list(subject.event_ids[:EVENTS_NAMED_MAX])
        match merged:
            case Nothing(reason=reason):
                return reason
            case Alarm(decision=decision, reason=reason):
                await self._money_back.alarm_once(
                    row, decision, reason, events=events, payment_intent=subject.payment_intent
                )
                return reason
            case Apply(state=state, payment_intent=intent, reason=reason, alarm=alarm):
                await self._charges.settle(
                    row,
                    state,
                    payment_intent=intent.id,
                    latest_charge=intent.latest_charge,
                    reason=reason,
                    decision="settled_by_webhook" if events else "settled_by_reconciliation",
                    alarm=alarm,
                    events=events,
                    **decline_evidence(intent, row.confirm_version) if state is State.DECLINED else {},
                )
                return f"{row.state} -> {state}: {reason}"

    async def _look_at_money_back(self, row: Charge, subject: Subject, number: int, reason: str) -> Look:
        told: list[str] = [reason]
        if About.REFUNDS in subject.abouts:
            await self._limiter.acquire(Endpoint.LIST)
            refunds = await self._gateway.list_refunds(self._account, subject.payment_intent)
            if refunds.failure is not None:
                return self._away(refunds.failure)
            await self._money_back.save_refunds(row, refunds.items, look=number)
            told.append(_count("refund", [one.status for one in refunds.items]))
        if About.DISPUTES in subject.abouts:
            await self._limiter.acquire(Endpoint.LIST)
            disputes = await self._gateway.list_disputes(self._account, subject.payment_intent)
            if disputes.failure is not None:
                return self._away(disputes.failure)
            await self._money_back.save_disputes(row, disputes.items, look=number)
            told.append(_count("dispute", [one.status for one in disputes.items]))
        return Look(LookEnd.MERGED, "; ".join(told))

    def _away(self, failure: str) -> Look:
        self._heed_rate(Endpoint.LIST, failure)
        return Look(LookEnd.AWAY, f"Stripe was asked: {failure}")

    def _heed_rate(self, endpoint: Endpoint, failure: str) -> None:
        if "HTTP 429" in failure:
            self._limiter.slow_down(endpoint, retry_after_seconds=None)


def _count(noun: str, statuses: Sequence[str]) -> str:
    return f"{len(statuses)} {noun}{'' if len(statuses) == 1 else 's'} ({', '.join(sorted(statuses))})"
