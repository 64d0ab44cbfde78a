"""A person's decision about a charge in review, borne out by Stripe at that moment, and recorded.

Asked first, then claimed under a new fence, then written under the row's guards: whatever moved in between,
the decision is not recorded over it.
"""

from dataclasses import dataclass, field
from typing import Any

from activities.accounts import AccountParts
from activities.ledger.charges import ChargeLedger
from activities.ledger.review import ReviewHistory, ReviewLedger
from activities.look_up import LIST_BEFORE_FIRST_SEND_SECONDS
from activities.send import Sender
from activities.stripe_pages import Unreadable, read_pages
from workflows.contracts import Decision
from workflows.domain.answer import PaymentIntent
from workflows.domain.charge import Charge
from workflows.domain.errors import RefusedToStart
from workflows.domain.keys import Operation
from workflows.domain.recovery import PAID_STATUSES
from workflows.domain.review import Allowed, Evidence, Refused, Resolution, Ruling, rule_on
from workflows.domain.states import State


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A charge with what Stripe shows of it, and what may be decided about it."""

    charge: Charge
    evidence: Evidence
    rulings: dict[Resolution, Ruling] = field(default_factory=dict)


class Reviewer:
    """Looks at charges in review and records decisions, for one account."""

    def __init__(self, parts: AccountParts, charges: ChargeLedger, reviews: ReviewLedger) -> None:
        self._parts = parts
        self._charges = charges
        self._reviews = reviews

    async def look(self, charge_id: str) -> Reviewed:
        """Return the charge, every PaymentIntent of its identity as it is now, and what that allows.

        Raises:
            Unreadable: Stripe did not answer in full, so nothing can be decided.
        """
        charge = await self._charges.read(charge_id)
        history = await self._reviews.history(charge_id)
        intents = await self._intents(charge, history)
        evidence = Evidence(intents, await self._returned(intents), history.may_still_run)
        rulings = {resolution: rule_on(charge, resolution, evidence) for resolution in Resolution}
        return Reviewed(charge, evidence, rulings)

    async def _intents(self, charge: Charge, history: ReviewHistory) -> list[PaymentIntent]:
        """Return every PaymentIntent of a charge: its customer's, and whatever else the ledger heard of."""
        charge_id, intents = charge.charge_id, list[PaymentIntent]()
        since = int(history.first_intended_epoch_seconds) - LIST_BEFORE_FIRST_SEND_SECONDS
        async for page in read_pages(
            self._parts.gateway,
            self._parts.account,
            customer=charge.customer,
            since_epoch_seconds=since,
            limiter=self._parts.limiter,
        ):
            intents += [one for one in page.payment_intents if one.charge_id == charge_id]
        shown = {intent.id for intent in intents}
        for intent_id in sorted(await self._reviews.intents_named_for(charge_id) - shown):
            found = await self._parts.gateway.retrieve_payment_intent(
                self._parts.account, intent_id, started_epoch_seconds=history.now_epoch_seconds
            )
            if not found.complete:
                raise Unreadable(f"Stripe was asked for {intent_id}: {found.failure}")
            intents += [one for one in found.payment_intents if one.charge_id == charge_id]
        return intents

    async def _returned(self, intents: list[PaymentIntent]) -> dict[str, int]:
        returned: dict[str, int] = {}
        for intent in intents:
            if intent.status in PAID_STATUSES:
                found = await self._parts.gateway.list_refunds(self._parts.account, intent.id)
                if found.failure is not None:
                    raise RefusedToStart(f"Stripe was asked for the refunds of {intent.id}: {found.failure}")
                returned[intent.id] = sum(refund.returns_minor for refund in found.items)
        return returned

    async def resolve(
        self, charge_id: str, resolution: Resolution, decision: Decision, *, sender: Sender
    ) -> Charge:
        """Look at Stripe, and record the decision if it is borne out; return the charge as it is then.

        Raises:
            RefusedToStart: Stripe does not bear it out, with what to do instead.
            StaleWrite: The charge moved meanwhile: look at it again.
            Unreadable: Stripe did not answer in full.
        """
        reviewed = await self.look(charge_id)
        ruling = reviewed.rulings[resolution]
        if isinstance(ruling, Refused):
            raise RefusedToStart(f"charge {charge_id} can't be resolved as {resolution}: {ruling.reason}")
        charge = await self._reviews.claim(reviewed.charge)
        if ruling.cancel_first:
            return await self._cancel(charge, decision, sender)
        return await self._record(charge, ruling, resolution, decision, _shown(reviewed.evidence))

    async def _cancel(self, charge: Charge, decision: Decision, sender: Sender) -> Charge:
        reason = f"resolved as canceled by {decision.who}: {decision.reason}"
        await self._charges.note(charge, "resolving", reason, who=decision.who)
        sent = await sender.send_first(charge, Operation.CANCEL, reason=reason)
        return sent.charge

    async def _record(
        self,
        charge: Charge,
        ruling: Allowed,
        resolution: Resolution,
        decision: Decision,
        shown: list[dict[str, Any]],
    ) -> Charge:
        intent = ruling.payment_intent
        paid = ruling.state in {State.SUCCEEDED, State.PROCESSING}
        if intent is not None and paid and charge.payment_intent != intent.id:
            charge = await self._reviews.take_paid(charge, intent.id, {"who": decision.who})
        return await self._charges.settle(
            charge,
            ruling.state,
            payment_intent=None if intent is None else intent.id,
            latest_charge=None if intent is None else intent.latest_charge,
            reason=f"resolved as {resolution} by {decision.who}: {decision.reason}",
            decision="resolved",
            who=decision.who,
            resolution=resolution,
            shown=shown,
        )


def _shown(evidence: Evidence) -> list[dict[str, Any]]:
    return [
        {
            "payment_intent": one.id,
            "status": one.status,
            "amount_minor": one.amount_minor,
            "currency": one.currency,
            "returned_minor": evidence.returned_minor.get(one.id, 0),
        }
        for one in evidence.payment_intents
    ]
