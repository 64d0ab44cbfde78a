"""Working through the inbox: leased events, one look per object, each event ended with what came of it.

At least once, with effects exactly once: whoever dies keeps nothing but a lease, and whoever takes the events
over finds the charge as it is. Every process may do this beside any other.

What costs a request at Stripe is only asked where the ledger does not have it already, and an event of a
charge whose own request is on the wire waits a little: its answer usually comes first.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from activities.accounts import Accounts
from activities.ledger.charges import ChargeLedger
from activities.ledger.database import PERMANENT, Pool
from activities.ledger.inbox import Claimed, Ending, EventState, InboxLedger
from activities.ledger.money_back import MoneyBackLedger
from activities.merge import Look, LookEnd, Merger, Subject
from activities.vault import READING
from workflows.contracts import RunKey
from workflows.domain.charge import Charge
from workflows.domain.errors import ChargeonceError, RefusedToStart
from workflows.domain.merge import About, about, is_known
from workflows.domain.states import IN_FLIGHT, NOT_STARTED

CLAIM_EVENTS = 100
LOOKS_AT_ONCE = 8
LEASE_SECONDS = 120.0
IN_FLIGHT_SECONDS = 5.0  # what an answer that is on its way usually takes, and more
MOVED_SECONDS = 2.0
AWAY_SECONDS, AWAY_SECONDS_MAX = 5.0, 600.0
UNMATCHED_SECONDS, UNMATCHED_SECONDS_MAX = 60.0, 6 * 3600.0
TRIES_BEFORE_PARKING = 5

# What a bug, a broken rule of the schema or an impossible object raises, however often it is tried.
# Connections that break are not among them: those belong to whoever runs the loop.
_POISON = (*PERMANENT, ChargeonceError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass did: events that were taken, and objects that Stripe was asked for."""

    events: int = 0
    looks: int = 0


@dataclass(frozen=True, slots=True)
class _Nudges:
    """The events of one object."""

    account: str
    payment_intent: str
    events: tuple[Claimed, ...]

    @property
    def charge_id(self) -> str | None:
        return next((event.charge_id for event in self.events if event.charge_id is not None), None)

    @property
    def tries(self) -> int:
        return max(event.tries for event in self.events)


class InboxWorker:
    """Takes what is due and works through it."""

    def __init__(
        self, pool: Pool, accounts: Accounts, *, in_flight_seconds: float = IN_FLIGHT_SECONDS
    ) -> None:
        """Prepare; `in_flight_seconds` is how long a charge in flight is left to its own sender first."""
        self.inbox = InboxLedger(pool)
        self._accounts = accounts
        self._charges = ChargeLedger(pool)
        self._money_back = MoneyBackLedger(pool)
        self._in_flight_seconds = in_flight_seconds
        self._left_behind: set[int] = set()

    async def work(self, *, limit: int = CLAIM_EVENTS) -> Pass:
        """Take up to `limit` events that are due, and whatever waits for the same objects, and end them.

        Raises what the database raises when it goes away. The next pass gives the leases back, or
        `give_back`; without either, they run out.
        """
        await self.give_back()
        claimed = await self.inbox.claim(limit=limit, lease_seconds=LEASE_SECONDS)
        if not claimed:
            return Pass()
        try:
            return Pass(len(claimed), await self._work_through(claimed))
        except BaseException:
            self._left_behind.add(claimed[0].claim)
            raise

    async def give_back(self) -> None:
        """Give back the leases of passes that ended before their time: others need not wait for them."""
        if self._left_behind:
            await self.inbox.release(sorted(self._left_behind))
            self._left_behind.clear()

    async def _work_through(self, claimed: Sequence[Claimed]) -> int:
        """End what was taken; return how many objects Stripe was asked for."""
        nudges, settled = _sort_out(claimed)
        known = await self.inbox.read_charges(
            sorted({one.charge_id for one in nudges if one.charge_id is not None})
        )
        to_look_at: list[_Nudges] = []
        for one in nudges:
            row = known.get(one.charge_id or "")
            ending = _without_asking(one, row, self._in_flight_seconds)
            if ending is None:
                to_look_at.append(one)
            else:
                settled.append(ending)
        slots = asyncio.Semaphore(LOOKS_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._end_all(settled))
            for one in to_look_at:
                group.create_task(self._look(one, slots))
        return len(to_look_at)

    async def _end_all(self, endings: Sequence[Ending]) -> None:
        await asyncio.gather(*(self.inbox.end(ending) for ending in endings))

    async def _look(self, nudges: _Nudges, slots: asyncio.Semaphore) -> None:
        async with slots:
            try:
                ending = _ending_of(nudges, await self._look_at(nudges))
            except _POISON as error:
                ending = _poisoned(nudges, _describe(error))
            except Exception as error:  # noqa: BLE001 - if it is the database, the next write raises as well
                wait_seconds = _backoff(AWAY_SECONDS, nudges.tries, AWAY_SECONDS_MAX)
                ending = Ending(nudges.events, EventState.WAITING, _describe(error), wait_seconds)
            await self.inbox.end(ending)

    async def _look_at(self, nudges: _Nudges) -> Look:
        try:
            parts = await self._accounts.of(RunKey(run_id="", account=nudges.account), READING)
        except RefusedToStart as refusal:
            return Look(LookEnd.AWAY, str(refusal))
        merger = Merger(parts, charges=self._charges, inbox=self.inbox, money_back=self._money_back)
        return await merger.look(
            Subject(
                payment_intent=nudges.payment_intent,
                charge_id=nudges.charge_id,
                abouts=frozenset(about(event.type) for event in nudges.events),
                event_ids=tuple(event.event_id for event in nudges.events),
            )
        )


def _sort_out(claimed: Sequence[Claimed]) -> tuple[list[_Nudges], list[Ending]]:
    """Return what is to be looked at, by object, and what ends without a look at anything."""
    endings: list[Ending] = []
    by_object: defaultdict[tuple[str, str], list[Claimed]] = defaultdict(list)
    for event in claimed:
        if about(event.type) is About.NOTHING:
            endings.append(Ending((event,), EventState.IGNORED, f"{event.type} changes no charge"))
        elif event.payment_intent is None and event.object_kind == "payment_intent":
            endings.append(Ending((event,), EventState.PARKED, "a PaymentIntent without a readable id"))
        elif event.payment_intent is None:
            endings.append(Ending((event,), EventState.IGNORED, "not about a PaymentIntent"))
        elif event.charge_id is None and event.object_kind in {"payment_intent", "charge"}:
            endings.append(Ending((event,), EventState.IGNORED, "carries no identity of ours"))
        else:
            by_object[event.account, event.payment_intent].append(event)
    nudges = [_Nudges(account, intent, tuple(events)) for (account, intent), events in by_object.items()]
    return nudges, endings


def _without_asking(nudges: _Nudges, row: Charge | None, in_flight_seconds: float) -> Ending | None:
    """Return how events end that need no request, or not yet; None where Stripe has to be asked."""
    if row is None:
        return None
    if all(is_known(row, nudges.payment_intent, event.type) for event in nudges.events):
        return Ending(nudges.events, EventState.DONE, f"{row.state} already: nobody had to be asked")
    if nudges.tries == 0 and in_flight_seconds > 0 and row.state in IN_FLIGHT | NOT_STARTED:
        reason = f"the charge is {row.state}: its own answer may be on its way"
        return Ending(nudges.events, EventState.WAITING, reason, wait_seconds=in_flight_seconds)
    return None


def _ending_of(nudges: _Nudges, look: Look) -> Ending:
    match look.end:
        case LookEnd.MERGED:
            return Ending(nudges.events, EventState.DONE, look.reason)
        case LookEnd.NOT_OURS:
            return Ending(nudges.events, EventState.IGNORED, look.reason)
        case LookEnd.UNMATCHED:
            wait_seconds = _backoff(UNMATCHED_SECONDS, nudges.tries, UNMATCHED_SECONDS_MAX)
            return Ending(nudges.events, EventState.UNMATCHED, look.reason, wait_seconds)
        case LookEnd.AWAY:
            wait_seconds = _backoff(AWAY_SECONDS, nudges.tries, AWAY_SECONDS_MAX)
            return Ending(nudges.events, EventState.WAITING, look.reason, wait_seconds)
        case LookEnd.MOVED:
            return Ending(nudges.events, EventState.WAITING, look.reason, MOVED_SECONDS)
        case LookEnd.ABSENT:
            return _poisoned(nudges, look.reason)


def _poisoned(nudges: _Nudges, reason: str) -> Ending:
    if nudges.tries + 1 >= TRIES_BEFORE_PARKING:
        return Ending(nudges.events, EventState.PARKED, reason)
    wait_seconds = _backoff(AWAY_SECONDS, nudges.tries, AWAY_SECONDS_MAX)
    return Ending(nudges.events, EventState.WAITING, reason, wait_seconds)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _backoff(first_seconds: float, tries: int, most_seconds: float) -> float:
    return min(first_seconds * 2.0 ** min(tries, 20), most_seconds)
