"""Charges in flight, settled by whoever reconciles: by the one settle function, under a fence of its own.

Nothing is taken from under a live slice. What is sent again goes out under a key of the charge's run: its
charging key while the run is open, or one that somebody approved for that. Without a key, or where it is
refused, Stripe is only asked, and what it shows is recorded.
"""

from asyncio import TaskGroup
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from activities.accounts import AccountParts, Accounts
from activities.counted_limiter import CountedLimiter
from activities.first_error import first_error
from activities.ledger.charges import ChargeLedger
from activities.ledger.database import Pool
from activities.ledger.in_flight import InFlightLedger, Quiet
from activities.ledger.vault import KeyUse
from activities.limiter import Limiter
from activities.send import Sender, Sent
from activities.settle import Settler, Step
from activities.skew_watch import SkewWatch
from activities.vault import CHARGING, RECONCILING, RESENDING
from workflows.contracts import RunKey
from workflows.domain.charge import Charge, Intent
from workflows.domain.errors import ChargeonceError, RefusedToStart, StaleWrite
from workflows.domain.keys import Operation
from workflows.domain.states import State
from workflows.domain.verdict import Cause, Proof

QUIET_SECONDS = 60.0  # by the ledger's clock; a request has its answer, or its timeout, long before
AT_ONCE = 8
STEPS_MAX = 3  # with one charge: a send, and a look at what a replayed answer left open


class FlightEnd(StrEnum):
    """How settling one charge ended."""

    SETTLED = "settled"  # it is not in flight any more
    IN_FLIGHT = "in_flight"  # its window has to pass, or its run has to go on
    LIVE = "live"  # a slice may be working with it: not touched
    AWAY = "away"  # Stripe did not answer


@dataclass(frozen=True, slots=True)
class Flight:
    """What became of one charge. `wait_seconds` is for how long nothing helps, where that is known."""

    charge_id: str
    end: FlightEnd
    reason: str
    charge: Charge | None = None
    wait_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Flights:
    """What became of charges in flight, and how many requests it took."""

    flights: tuple[Flight, ...]
    requests: int

    def count(self) -> Counter[FlightEnd]:
        """Return how many ended in which way."""
        return Counter(one.end for one in self.flights)


class SendsForbidden(ChargeonceError):
    """Something would have to be sent, and there is no key to send it by."""


class _LookingOnly(Sender):
    """Sends nothing: what would have to be sent is left in flight."""

    async def send_intended(self, operation: Operation, intend: Callable[[], Awaitable[Intent]]) -> Sent:
        del intend
        raise SendsForbidden(f"a {operation} would have to be sent, and may not be")


async def settle_in_flight(
    pool: Pool,
    accounts: Accounts,
    parts: AccountParts,
    charge_ids: Sequence[str],
    *,
    abandoned_runs: Collection[str] = (),
) -> Flights:
    """Take one step with each of these charges that is in flight and that nobody else works with.

    Can be repeated at any point. Charges that are not in flight come back as settled, untouched.

    Args:
        pool: The ledger.
        accounts: Where a key comes from that may send.
        parts: By what Stripe is asked about the account, where nothing may be sent.
        charge_ids: Which charges.
        abandoned_runs: Runs whose workflow is known to be gone: no slice of theirs is alive.
    """
    claimed = {
        one.charge.charge_id: one
        for one in await InFlightLedger(pool).claim_quiet(
            charge_ids, quiet_seconds=QUIET_SECONDS, abandoned_runs=abandoned_runs
        )
    }
    ledger = ChargeLedger(pool)
    work = _Work(ledger, accounts, parts, CountedLimiter(parts.limiter))
    ends: dict[str, Flight] = {}
    waiting: Iterator[str] = iter(dict.fromkeys(charge_ids))

    async def settle_next() -> None:
        for charge_id in waiting:
            quiet = claimed.get(charge_id)
            ends[charge_id] = await (_left_alone(ledger, charge_id) if quiet is None else work.settle(quiet))

    with first_error():
        async with TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(settle_next())
    return Flights(tuple(ends[one] for one in dict.fromkeys(charge_ids)), work.limiter.requests)


async def _left_alone(ledger: ChargeLedger, charge_id: str) -> Flight:
    charge = await ledger.read(charge_id)
    if charge.is_in_flight:
        return Flight(charge_id, FlightEnd.LIVE, "a slice may be at work with it", charge)
    return Flight(charge_id, FlightEnd.SETTLED, f"{charge.state} already", charge)


@dataclass(slots=True)
class _Work:
    """What works through the charges of one call: what one refused key teaches holds for all of its run."""

    ledger: ChargeLedger
    accounts: Accounts
    reading: AccountParts
    limiter: CountedLimiter
    skew: SkewWatch = field(default_factory=SkewWatch)
    keyless: dict[tuple[str, str], str] = field(default_factory=dict)
    """Why a run has no key for a use."""

    async def settle(self, quiet: Quiet) -> Flight:
        """Settle one charge: by a key that may send if there is one, by looking alone otherwise."""
        charge, whys = quiet.charge, list[str]()
        for use in self._uses(quiet):
            known = self.keyless.get((charge.run_id, use.name))
            parts = None if known else await self._parts_for(charge, use)
            if parts is not None:
                flight = await self._carry(quiet, self._settler(parts, Sender))
                if flight is not None:
                    return flight
                self.keyless[charge.run_id, use.name] = f"its key for {use.name} was refused"
            whys.append(self.keyless[charge.run_id, use.name])
        looked = await self._carry(quiet, self._settler(self.reading, _LookingOnly))
        if looked is None:
            return Flight(
                charge.charge_id, FlightEnd.AWAY, "the credentials are refused for lookups as well", charge
            )
        why = "; ".join(whys) or "its run has ended, and nobody has approved that anything is sent"
        return (
            looked if looked.end is FlightEnd.SETTLED else replace(looked, reason=f"{looked.reason}: {why}")
        )

    def _uses(self, quiet: Quiet) -> tuple[KeyUse, ...]:
        """By which keys a request of this charge may be repeated."""
        if quiet.charge.state is State.CANCELING:
            return (RECONCILING,)
        # A real key knows no approvals: by it only an open run sends.
        approved = (RESENDING,) if self.accounts.through_proxy else ()
        return (CHARGING, *approved) if quiet.run_is_open else approved

    async def _parts_for(self, charge: Charge, use: KeyUse) -> AccountParts | None:
        try:
            return await self.accounts.of(RunKey(run_id=charge.run_id, account=charge.account), use)
        except RefusedToStart as refusal:
            self.keyless[charge.run_id, use.name] = str(refusal)
            return None

    def _settler(self, parts: AccountParts, sender_type: type[Sender]) -> Settler:
        limiter: Limiter = self.limiter
        sender = sender_type(
            ledger=self.ledger,
            gateway=parts.gateway,
            limiter=limiter,
            account=parts.account,
            places=parts.places,
            skew=self.skew,
        )
        return Settler(
            ledger=self.ledger,
            gateway=parts.gateway,
            limiter=limiter,
            sender=sender,
            account=parts.account,
            skew=self.skew,
        )

    async def _carry(self, quiet: Quiet, settler: Settler) -> Flight | None:
        """Take steps until one ends it; None where the credentials were refused."""
        charge_id, charge = quiet.charge.charge_id, await self.ledger.read(quiet.charge.charge_id)
        reason = "its newest request has no determined answer"
        for _ in range(STEPS_MAX):
            if not charge.is_in_flight:
                return Flight(charge_id, FlightEnd.SETTLED, charge.reason or charge.state, charge)
            if charge.fence != quiet.charge.fence:
                return Flight(charge_id, FlightEnd.LIVE, "somebody else has claimed it", charge)
            try:
                step = await settler.settle(charge, quiet.mode)
            except StaleWrite as stale:
                charge, reason = await self.ledger.read(charge_id), str(stale)
                continue
            except SendsForbidden as forbidden:
                return Flight(charge_id, FlightEnd.IN_FLIGHT, str(forbidden), charge)
            charge = step.charge
            if _is_refused(step):
                return None
            if step.waiting or step.held:
                return Flight(
                    charge_id,
                    FlightEnd.IN_FLIGHT,
                    step.reason or charge.reason or "held",
                    charge,
                    step.wait_seconds,
                )
            if step.sent is not None:
                reason = step.sent.verdict.reason
                if charge.is_in_flight and not _shows_more_when_looked_at(step.sent):
                    return Flight(charge_id, FlightEnd.IN_FLIGHT, reason, charge)
        if not charge.is_in_flight:
            return Flight(charge_id, FlightEnd.SETTLED, charge.reason or charge.state, charge)
        return Flight(charge_id, FlightEnd.IN_FLIGHT, reason, charge)


def _is_refused(step: Step) -> bool:
    if step.refusal is not None:
        return True
    return step.sent is not None and step.sent.verdict.cause is Cause.CREDENTIALS


def _shows_more_when_looked_at(sent: Sent) -> bool:
    return sent.verdict.proof is Proof.OUTDATED or sent.verdict.cause is Cause.STORED_FAILURE
