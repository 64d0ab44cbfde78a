"""The orphan sweep: a PaymentIntent of a charge's identity that is not the charge's own is canceled.

It moves no money, and keeps anybody from moving any by it. Whether it is safe is decided under the row's lock
(`activities.ledger.sweep`); what is sent goes out on the one path on which everything is sent.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from activities.accounts import AccountParts, Accounts
from activities.counted_limiter import CountedLimiter
from activities.gateway.requests import cancel_request
from activities.ledger.charges import ChargeLedger
from activities.ledger.database import Pool
from activities.ledger.inbox import InboxLedger
from activities.ledger.money_back import MoneyBackLedger
from activities.ledger.sweep import NOT_SWEPT, NOT_SWEPT_RESTORING, NotNow, Orphan, SweepLedger
from activities.ledger.vault import KeyUse
from activities.limiter import Endpoint
from activities.merge import Merger, Subject
from activities.send import Sender, Sent
from activities.skew_watch import SkewWatch
from activities.vault import RECONCILING, RESTORING
from workflows.contracts import RunKey
from workflows.domain.answer import Lookup
from workflows.domain.charge import Charge
from workflows.domain.errors import RefusedToStart
from workflows.domain.keys import Operation, canonical_parameters
from workflows.domain.merge import About
from workflows.domain.recovery import CANCELED_STATUS, PAID_STATUSES
from workflows.domain.states import State
from workflows.domain.verdict import Proof

# What moves no money by itself. An authorization is not among them: somebody confirmed it.
SWEPT_STATUSES = frozenset({"requires_payment_method", "requires_confirmation", "requires_action"})


class SweepEnd(StrEnum):
    """How a sweep ended."""

    CANCELED = "canceled"  # Stripe says so, now or before
    PAID = "paid"  # it was paid after all, and is recorded as that: people see it
    NOT_NOW = "not_now"  # nothing was canceled, for a reason
    UNKNOWN = "unknown"  # a cancel was sent, and no answer said what it did: sweep again


@dataclass(frozen=True, slots=True)
class Swept:
    """What became of one PaymentIntent, and how many requests it took."""

    end: SweepEnd
    reason: str
    requests: int = 0


async def sweep_orphan(
    pool: Pool,
    accounts: Accounts,
    parts: AccountParts,
    charge_id: str,
    payment_intent: str,
    *,
    reason: str,
    restoring: bool = False,
) -> Swept:
    """Cancel a PaymentIntent that carries a charge's identity and is not its own, if that is safe now.

    Can be repeated at any point: an unanswered cancel is sent again under its key, and past its window under
    the next version. The charge's row stays as it is.

    Args:
        pool: The ledger.
        accounts: Where the key comes from that may cancel: the reconciling one of the charge's run.
        parts: By what Stripe is asked about the account.
        charge_id: The charge whose identity it carries.
        payment_intent: What is to be canceled.
        reason: Why, for the journal.
        restoring: Whether a restore of the ledger is open, so that no create can be under way: whatever is
            not the charge's own may go.
    """
    counted = CountedLimiter(parts.limiter)
    reading = replace(parts, limiter=counted)
    sweep = _Sweep(
        pool=pool,
        accounts=accounts,
        parts=reading,
        charge_id=charge_id,
        payment_intent=payment_intent,
        reason=reason,
        not_swept=NOT_SWEPT_RESTORING if restoring else NOT_SWEPT,
        use=RESTORING if restoring else RECONCILING,
    )
    return replace(await sweep.run(), requests=counted.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sweep:
    """One sweep of one PaymentIntent."""

    pool: Pool
    accounts: Accounts
    parts: AccountParts
    charge_id: str
    payment_intent: str
    reason: str
    not_swept: frozenset[State]
    use: KeyUse

    async def run(self) -> Swept:
        charge = (await InboxLedger(self.pool).read_charges([self.charge_id])).get(self.charge_id)
        if charge is None:
            return _not_now(f"the ledger has no charge {self.charge_id}")
        ledger = SweepLedger(self.pool)
        lookup = await self._retrieve()
        found = lookup.payment_intents[0] if lookup.complete else None
        if found is None:
            return _not_now(f"Stripe was asked for {self.payment_intent}: {lookup.failure}")
        if found.charge_id != self.charge_id:
            return _not_now(f"{found.id} does not carry this charge's identity")
        request = cancel_request(self.payment_intent)
        parameters = canonical_parameters(request.parameters)
        orphan = Orphan(
            charge_id=self.charge_id,
            payment_intent=self.payment_intent,
            path=request.path,
            parameters=parameters,
            lookup=lookup,
            reason=self.reason,
            not_swept=self.not_swept,
        )
        if found.status == CANCELED_STATUS:
            await ledger.note_canceled(orphan, requests=list(lookup.request_ids))
            return Swept(SweepEnd.CANCELED, "canceled already")
        if found.status in PAID_STATUSES:
            return await self._record_paid(found.status)
        if found.status not in SWEPT_STATUSES:
            return _not_now(f"{found.id} is {found.status}, which is for people to decide")
        try:
            sender = await self._sender(charge)
            sent = await sender.send_intended(Operation.CANCEL, lambda: ledger.intend(orphan))
        except (NotNow, RefusedToStart) as refusal:
            return _not_now(str(refusal))
        return await self._conclude(sent)

    async def _retrieve(self) -> Lookup:
        await self.parts.limiter.acquire(Endpoint.RETRIEVE)
        # Read after the limiter has let the lookup go, or its wait would look like skew.
        now = await ChargeLedger(self.pool).now()
        return await self.parts.gateway.retrieve_payment_intent(
            self.parts.account, self.payment_intent, started_epoch_seconds=now
        )

    async def _sender(self, charge: Charge) -> Sender:
        """Return what sends by the run's reconciling key. Raises RefusedToStart where it has none."""
        parts = await self.accounts.of(RunKey(run_id=charge.run_id, account=charge.account), self.use)
        return Sender(
            ledger=ChargeLedger(self.pool),
            gateway=parts.gateway,
            limiter=self.parts.limiter,
            account=parts.account,
            places=parts.places,
            skew=SkewWatch(),
        )

    async def _conclude(self, sent: Sent) -> Swept:
        found = sent.answer.payment_intent
        if found is not None and found.id == self.payment_intent:
            if found.status == CANCELED_STATUS:
                return Swept(SweepEnd.CANCELED, sent.verdict.reason)
            if found.status in PAID_STATUSES:
                return await self._record_paid(found.status)
        if sent.verdict.state is State.REVIEW:
            await MoneyBackLedger(self.pool).alarm_once(
                sent.charge, "sweep", f"{self.payment_intent}: {sent.verdict.reason}"
            )
        if sent.verdict.proof is Proof.NOT_EXECUTED:
            return _not_now(f"the cancel was not executed: {sent.verdict.reason}")
        return Swept(SweepEnd.UNKNOWN, f"the cancel's answer decides nothing: {sent.verdict.reason}")

    async def _record_paid(self, status: str) -> Swept:
        merger = Merger(
            self.parts,
            charges=ChargeLedger(self.pool),
            inbox=InboxLedger(self.pool),
            money_back=MoneyBackLedger(self.pool),
        )
        subject = Subject(
            payment_intent=self.payment_intent,
            charge_id=self.charge_id,
            abouts=frozenset({About.PAYMENT}),
            event_ids=(),
        )
        look = await merger.look(subject)
        return Swept(SweepEnd.PAID, f"{status} at Stripe: {look.reason}")


def _not_now(reason: str) -> Swept:
    return Swept(SweepEnd.NOT_NOW, reason)
