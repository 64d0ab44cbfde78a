"""The charging activities: claim under a fence, carry concurrently, report counts.

Declines and unknown outcomes are values in the ledger, not exceptions; what raises here is infrastructure,
and Temporal retries it without a maximum.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.accounts import AccountParts, Accounts
from activities.carry import Carrier, End
from activities.crash_points import CrashPoint, reach
from activities.first_error import first_error
from activities.heartbeat import heartbeats
from activities.ledger.charges import ChargeLedger
from activities.ledger.control import ControlLedger
from activities.run_watch import RunWatch, watching
from activities.send import Sender
from activities.settle import Settler
from activities.skew_watch import SkewWatch
from workflows import contracts
from workflows.contracts import HoldKind, Progress, RunKey, Settling, Slice
from workflows.domain.breaker import Breaker, Trip
from workflows.domain.charge import Charge
from workflows.domain.errors import CredentialsRefused
from workflows.domain.mode import Mode, claims_of

DUE_BATCH_MAX = 500
CANCELED_AT_ONCE_MAX = 10_000  # charges that nothing was sent for, in one statement
CARRIED_PER_REQUEST = 2  # while one charge's request is out, another's commit is on its way to the disk


@dataclass(slots=True)
class _Kept:
    """What this process keeps for one account from pass to pass: nothing that another account waits for."""

    carried_at_once: int
    places: asyncio.Semaphore = field(init=False)
    skew: SkewWatch = field(default_factory=SkewWatch)

    def __post_init__(self) -> None:
        self.places = asyncio.Semaphore(self.carried_at_once)


@dataclass(frozen=True, slots=True)
class _Pass:
    """One activity at work: for whom, and how the run stands meanwhile."""

    run: RunKey
    parts: AccountParts
    kept: _Kept
    watch: RunWatch
    breaker: Breaker


@dataclass(frozen=True, slots=True)
class _Canceled:
    """How many charges were canceled unasked, and whether nothing of the run is open any more."""

    charges: int = 0
    is_all: bool = False


class ChargeActivities(contracts.ChargeActivities):
    """Charges slices and settles what is due, for every account that this process has credentials for."""

    def __init__(self, *, ledger: ChargeLedger, accounts: Accounts, control: ControlLedger) -> None:
        self._ledger = ledger
        self._accounts = accounts
        self._control = control
        self._kept: dict[str, _Kept] = {}

    @activity.defn(name="charge_slice")
    async def charge_slice(self, work: Slice) -> Progress:
        """Claim a slice, settle what an earlier attempt left in flight, charge the rest.

        Of a held run only what is in flight goes on; of one that is being canceled everything open is
        canceled. Credentials that are refused hold the run. Raises RefusedToStart where this process has none
        for the account: another one may.
        """
        run_id, slice_no = work.run.run_id, work.slice_no
        async with heartbeats(), watching(self._control, run_id) as watch:
            if watch.halted is not None:
                return Progress(halted=watch.halted, halted_kind=HoldKind.BREAKER)
            canceled = await self._cancel_planned(run_id, slice_no, watch.mode)
            if canceled.is_all:
                return Progress(settled=canceled.charges)
            try:
                async with self._at_work(work.run, watch, declines_accepted=work.declines_accepted) as one:
                    mode, held = watch.mode, 0
                    charges = await self._ledger.claim_slice(run_id, slice_no, claims_of(mode))
                    reach(CrashPoint.SLICE_AFTER_CLAIM)
                    if mode is Mode.HELD:
                        held = await self._ledger.count_not_started(run_id, slice_no)
                    return await self._carry_all(one, charges, settled=canceled.charges, held=held)
            except CredentialsRefused as refused:
                return _halted_by(refused, canceled)

    @activity.defn(name="settle_due")
    async def settle_due(self, work: Settling) -> Progress:
        """Claim what is due anywhere in the run and carry it on, as far as the run's standing lets it."""
        async with heartbeats(), watching(self._control, work.run_id) as watch:
            if watch.halted is not None:
                return Progress(halted=watch.halted, halted_kind=HoldKind.BREAKER)
            canceled = await self._cancel_planned(work.run_id, None, watch.mode)
            if canceled.is_all:
                return Progress(settled=canceled.charges)
            try:
                async with self._at_work(work, watch, declines_accepted=work.declines_accepted) as one:
                    charges = await self._ledger.claim_due(
                        work.run_id, limit=DUE_BATCH_MAX, claims=claims_of(watch.mode)
                    )
                    return await self._carry_all(one, charges, settled=canceled.charges)
            except CredentialsRefused as refused:
                return _halted_by(refused, canceled)

    @asynccontextmanager
    async def _at_work(
        self, run: RunKey, watch: RunWatch, *, declines_accepted: bool
    ) -> AsyncIterator[_Pass]:
        parts = await self._accounts.of(run)
        kept = self._kept.setdefault(run.account, _Kept(parts.requests_at_once * CARRIED_PER_REQUEST))
        async with parts.slices:
            if activity.is_worker_shutdown():
                _leave_to_the_next_worker()
            yield _Pass(run, parts, kept, watch, Breaker(declines_accepted=declines_accepted))

    async def _cancel_planned(self, run_id: str, slice_no: int | None, mode: Mode) -> _Canceled:
        """Cancel what nothing was sent for. That takes no Stripe, and so no credentials for it either."""
        if mode is not Mode.CANCELING:
            return _Canceled()
        charges = 0
        while not activity.is_worker_shutdown():
            more = await self._ledger.cancel_planned(run_id, slice_no, limit=CANCELED_AT_ONCE_MAX)
            charges += more
            if more < CANCELED_AT_ONCE_MAX:
                break
        return _Canceled(charges, is_all=not await self._ledger.has_open(run_id))

    async def _carry_all(
        self, one: _Pass, charges: Sequence[Charge], *, settled: int, held: int = 0
    ) -> Progress:
        breaker = one.breaker
        carrier = self._carrier(one)
        waiting = iter(charges)
        ends: Counter[End] = Counter()

        async def carry_next() -> None:
            for charge in waiting:
                async with one.kept.places:
                    ends[await carrier.carry(charge)] += 1

        with first_error():
            async with asyncio.TaskGroup() as group:
                for _ in range(min(one.kept.carried_at_once, len(charges))):
                    group.create_task(carry_next())
        if breaker.reason is None and ends[End.LEFT]:
            _leave_to_the_next_worker()
        return Progress(
            settled=settled + ends[End.SETTLED],
            deferred=ends[End.DEFERRED],
            held=held + ends[End.HELD],
            halted=breaker.reason,
            halted_kind=_kind_of(breaker.trip),
            closes_by_itself=breaker.trip is Trip.SILENCE,
            halted_by_declines=breaker.trip is Trip.DECLINES,
        )

    def _carrier(self, one: _Pass) -> Carrier:
        parts, skew = one.parts, one.kept.skew
        sender = Sender(
            ledger=self._ledger,
            gateway=parts.gateway,
            limiter=parts.limiter,
            account=parts.account,
            places=parts.places,
            skew=skew,
        )
        settler = Settler(
            ledger=self._ledger,
            gateway=parts.gateway,
            limiter=parts.limiter,
            sender=sender,
            account=parts.account,
            skew=skew,
        )
        return Carrier(
            ledger=self._ledger,
            sender=sender,
            settler=settler,
            breaker=one.breaker,
            watch=one.watch,
            skew=skew,
            is_draining=activity.is_worker_shutdown,
        )


def _halted_by(refused: CredentialsRefused, canceled: _Canceled) -> Progress:
    return Progress(
        settled=canceled.charges,
        halted=f"{refused}; mend that, then resume the run",
        halted_kind=HoldKind.BREAKER,
    )


def _kind_of(trip: Trip | None) -> HoldKind | None:
    if trip is None:
        return None
    return HoldKind.CAP if trip is Trip.CAP else HoldKind.BREAKER


def _leave_to_the_next_worker() -> None:
    # A deploy is no failure: the next attempt starts at once, on another worker.
    raise ApplicationError(
        "the worker is shutting down",
        type="WorkerShutdown",
        category=ApplicationErrorCategory.BENIGN,
        next_retry_delay=timedelta(milliseconds=1),
    )
