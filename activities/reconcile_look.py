"""The second pass of a reconciliation: what was suspected, looked at on both sides until its row holds still.

Whatever is in flight goes through the one settle function first. Then all PaymentIntents of the customer are
listed, the row is read after that, and only what still differs when nothing moves is called a difference.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from activities.accounts import AccountParts, Accounts
from activities.counted_limiter import CountedLimiter
from activities.differences import IN_FLIGHT, MONEY, Seen
from activities.ledger.database import Pool
from activities.ledger.drift import DriftLedger, Reconciliation
from activities.ledger.reconcile import ReconcileLedger, ScopedLine, Suspect
from activities.limiter import Endpoint
from activities.reconcile_judge import Judgement, judge
from activities.reconcile_repair import Repairer
from activities.reconcile_scan import MARGIN_SECONDS, seen_of
from activities.settle_for_reconcile import FlightEnd, settle_in_flight
from activities.stripe_pages import Unreadable, read_pages
from workflows.domain.answer import PaymentIntent
from workflows.domain.drift import Drift, RepairState
from workflows.reconcile_contracts import Looked

BATCH_CHARGES = 200
CUSTOMERS_AT_ONCE = 8
TRIES_MAX = 3
LOOKS_MAX = 4
LOOKS, REPAIRS = "looks", "repairs"
ONLY_IN_FLIGHT = "in flight"  # as `mark_unseen` says it
_FLIGHT_OUTCOMES = {
    FlightEnd.SETTLED: "agrees",
    FlightEnd.IN_FLIGHT: "in_flight",
    FlightEnd.LIVE: "in_flight",
}


@dataclass(slots=True)
class _Shown:
    """What Stripe shows of one customer, or of several that a charge names."""

    intents: dict[str, PaymentIntent] = field(default_factory=dict)

    def of(self, charge_id: str, returned: Mapping[str, int]) -> tuple[Seen, ...]:
        """Return every PaymentIntent of an identity, with what went back of it."""
        return tuple(
            seen_of(one, returned.get(one.id, 0))
            for one in self.intents.values()
            if one.charge_id == charge_id
        )


class Looker:
    """Looks at the suspects of one reconciliation."""

    def __init__(
        self,
        pool: Pool,
        ledger: ReconcileLedger,
        accounts: Accounts,
        parts: AccountParts,
        reconciliation: Reconciliation,
    ) -> None:
        self._pool = pool
        self._ledger = ledger
        self._drift = DriftLedger(pool)
        self._accounts = accounts
        self._parts = parts
        self._limiter = CountedLimiter(parts.limiter)
        self._is = reconciliation
        self._id = reconciliation.reconciliation_id
        self._repairer = Repairer(pool, accounts, parts, reconciliation)

    async def look(self) -> Looked:
        """Look at one batch of suspects, and return how many are left."""
        suspects = await self._ledger.next_suspects(self._id, limit=BATCH_CHARGES)
        flights = await self._settle(suspects)
        settled = frozenset(name for name, end in flights.items() if end is FlightEnd.SETTLED)
        concluded = await self._conclude_flights(suspects, flights)
        by_customer: defaultdict[str | None, list[Suspect]] = defaultdict(list)
        for one in suspects:
            if one.charge_id not in concluded:
                by_customer[one.customer].append(one)
        slots = asyncio.Semaphore(CUSTOMERS_AT_ONCE)

        async def look_at(customer: str | None, theirs: list[Suspect]) -> None:
            async with slots:
                await self._look_at(customer, theirs, settled)

        try:
            async with asyncio.TaskGroup() as group:
                for customer, theirs in by_customer.items():
                    group.create_task(look_at(customer, theirs))
        finally:
            await self._ledger.count_requests(self._id, LOOKS, self._limiter.take())
            await self._ledger.count_requests(self._id, REPAIRS, self._repairer.take_requests())
        return Looked(looked=len(suspects), left=await self._ledger.count_suspects(self._id))

    async def _settle(self, suspects: Sequence[Suspect]) -> dict[str, FlightEnd]:
        """Let what is in flight settle; return how that ended for each of them."""
        lines = await self._ledger.lines_of(self._is.account, [one.charge_id for one in suspects])
        flying = [charge_id for charge_id, scoped in lines.items() if scoped.line.state in IN_FLIGHT]
        if not flying:
            return {}
        flights = await settle_in_flight(self._pool, self._accounts, self._parts, flying)
        await self._ledger.count_requests(self._id, LOOKS, flights.requests)
        return {one.charge_id: one.end for one in flights.flights}

    async def _conclude_flights(
        self, suspects: Sequence[Suspect], flights: Mapping[str, FlightEnd]
    ) -> frozenset[str]:
        """End suspects that were only in flight: the settle function has looked, and no page showed more."""
        ends = {
            one.charge_id: _FLIGHT_OUTCOMES[flights[one.charge_id]]
            for one in suspects
            if one.why == ONLY_IN_FLIGHT and flights.get(one.charge_id) in _FLIGHT_OUTCOMES
        }
        if ends:
            await self._ledger.end_suspects(
                self._id, {name: (outcome, outcome == "agrees") for name, outcome in ends.items()}
            )
        return frozenset(ends)

    async def _look_at(self, customer: str | None, suspects: list[Suspect], settled: frozenset[str]) -> None:
        try:
            ends = await self._compare_all(customer, [one.charge_id for one in suspects])
        except Unreadable as failure:
            given_up = [one.charge_id for one in suspects if one.tries + 1 >= TRIES_MAX]
            again = [one.charge_id for one in suspects if one.tries + 1 < TRIES_MAX]
            await self._ledger.put_suspects_off(self._id, again)
            if given_up:
                await self._ledger.note_gap(self._id, f"customer {customer}", str(failure))
                await self._ledger.end_suspects(self._id, dict.fromkeys(given_up, ("unread", False)))
            return
        await self._ledger.end_suspects(
            self._id, {charge_id: (outcome, charge_id in settled) for charge_id, outcome in ends.items()}
        )

    async def _compare_all(self, customer: str | None, charge_ids: list[str]) -> dict[str, str]:
        before = await self._ledger.lines_of(self._is.account, charge_ids)
        shown = await self._list(customer, before)
        returned = await self._ledger.refunds_of(self._id, list(shown.intents))
        lines = await self._ledger.lines_of(self._is.account, charge_ids)
        return {
            charge_id: await self._conclude(charge_id, lines.get(charge_id), shown, returned)
            for charge_id in charge_ids
        }

    async def _list(self, customer: str | None, lines: Mapping[str, ScopedLine]) -> _Shown:
        """List everybody whom these charges name. Raises Unreadable where that is not shown in full."""
        names = {scoped.line.customer for scoped in lines.values()} | ({customer} if customer else set())
        firsts = [
            scoped.first_intended_at for scoped in lines.values() if scoped.first_intended_at is not None
        ]
        since = min([self._is.since, *firsts])
        shown = _Shown()
        for name in sorted(names):
            async for page in read_pages(
                self._parts.gateway,
                self._parts.account,
                customer=name,
                since_epoch_seconds=int(since.timestamp()) - MARGIN_SECONDS,
                limiter=self._limiter,
            ):
                shown.intents.update({one.id: one for one in page.payment_intents})
        return shown

    async def _conclude(
        self, charge_id: str, scoped: ScopedLine | None, shown: _Shown, returned: Mapping[str, int]
    ) -> str:
        """Keep what differs, once the row holds still, and let it be repaired where that was asked for."""
        judgement = self._judge(charge_id, scoped, shown, returned)
        for _ in range(LOOKS_MAX):
            if not judgement.is_momentary:
                break
            before = scoped
            shown, returned = await self._look_again(charge_id, scoped, shown)
            scoped = (await self._ledger.lines_of(self._is.account, [charge_id])).get(charge_id)
            judgement = self._judge(charge_id, scoped, shown, returned)
            if scoped == before:
                break
        else:
            raise Unreadable(f"charge {charge_id} moves whenever it is looked at")
        if not judgement.drifts:
            flying = scoped is not None and scoped.line.state in IN_FLIGHT
            return "in_flight" if flying else "agrees"
        await self._drift.record(self._id, self._is.account, judgement.drifts)
        if self._is.repair:
            await self._repair(charge_id, judgement.drifts, shown)
        return "differs"

    def _judge(
        self, charge_id: str, scoped: ScopedLine | None, shown: _Shown, returned: Mapping[str, int]
    ) -> Judgement:
        created = {one.id: one.created_epoch_seconds for one in shown.intents.values()}
        return judge(charge_id, scoped, shown.of(charge_id, returned), created=created)

    async def _look_again(
        self, charge_id: str, scoped: ScopedLine | None, shown: _Shown
    ) -> tuple[_Shown, dict[str, int]]:
        """Retrieve a charge's PaymentIntents one by one, with what went back of each by now."""
        wanted = {one.id for one in shown.intents.values() if one.charge_id == charge_id}
        if scoped is not None and scoped.line.payment_intent is not None:
            wanted.add(scoped.line.payment_intent)
        fresh, returned = _Shown(), dict[str, int]()
        for name in sorted(wanted):
            await self._limiter.acquire(Endpoint.RETRIEVE)
            lookup = await self._parts.gateway.retrieve_payment_intent(
                self._parts.account, name, started_epoch_seconds=0.0
            )
            if lookup.complete:
                [intent] = lookup.payment_intents
                fresh.intents[name] = intent
                if intent.status in MONEY:
                    returned[name] = await self._returned(name)
            elif not (lookup.failure or "").startswith("HTTP 404"):
                raise Unreadable(f"{name}: {lookup.failure}")
        return fresh, returned

    async def _returned(self, payment_intent: str) -> int:
        await self._limiter.acquire(Endpoint.LIST)
        found = await self._parts.gateway.list_refunds(self._parts.account, payment_intent)
        if found.failure is not None:
            raise Unreadable(found.failure)
        return sum(refund.returns_minor for refund in found.items)

    async def _repair(self, charge_id: str, drifts: Sequence[Drift], shown: _Shown) -> None:
        """Apply what moves no money, look once more, and say what that ended."""
        told = await self._repairer.repair(charge_id, drifts, shown.intents)
        if not told:
            return
        scoped = (await self._ledger.lines_of(self._is.account, [charge_id])).get(charge_id)
        fresh, returned = await self._look_again(charge_id, scoped, shown)
        left = {
            (drift.kind, drift.subject) for drift in self._judge(charge_id, scoped, fresh, returned).drifts
        }
        for drift in drifts:
            if drift in told:
                ended = (drift.kind, drift.subject) not in left
                state = RepairState.REPAIRED if ended else RepairState.FAILED
                await self._drift.end(self._is.account, drift.kind, drift.subject, state, told[drift])
