"""What a run does after its charging, over days: retries are sent, customers and debits asked about.

Each follow-up is claimed with its charge, under a new fence, and booked under that fence: whoever dies in
between leaves it to the next one, who finds in the charge's versions which retries were sent.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter
from temporalio import activity

from activities.accounts import AccountParts, Accounts
from activities.close_report import Closer
from activities.first_error import first_error
from activities.follow_up_step import Done, FollowUpStep
from activities.heartbeat import heartbeats
from activities.ledger.charges import ChargeLedger
from activities.ledger.control import ControlLedger
from activities.ledger.follow_ups import Candidate, Followed, FollowUpLedger
from activities.ledger.runs import RunLedger
from activities.payment_methods import PaymentMethods
from activities.reopen import Reopener
from activities.run_watch import RunWatch, watching
from activities.runs import due_of
from activities.send import Sender
from activities.settle import Settler
from activities.skew_watch import SkewWatch
from activities.vault import READING
from workflows import follow_up_contracts as contracts
from workflows.contracts import HoldKind, RunKey
from workflows.domain.breaker import Breaker, Trip
from workflows.domain.charge import Charge
from workflows.domain.errors import CredentialsRefused
from workflows.domain.follow_up import End, Wait, begin, cancel_first
from workflows.domain.retry_policy import DEFAULT_POLICY, RetryPolicy
from workflows.domain.states import State
from workflows.follow_up_contracts import FollowedUp, FollowUpsDue, FollowUpsPlanned

DUE_BATCH_MAX = 500
PLAN_TRIES_MAX = 3  # a webhook may move a charge between reading and opening; then its slice is read again
_POLICY = TypeAdapter(RetryPolicy)


class FollowUpActivities(contracts.FollowUpActivities):
    """Follows up what is not paid, for every account that this process has credentials for."""

    def __init__(
        self,
        *,
        charges: ChargeLedger,
        follow_ups: FollowUpLedger,
        runs: RunLedger,
        control: ControlLedger,
        accounts: Accounts,
        closer: Closer,
    ) -> None:
        self._charges = charges
        self._follow_ups = follow_ups
        self._runs = runs
        self._control = control
        self._accounts = accounts
        self._closer = closer
        self._skew: dict[str, SkewWatch] = {}

    @activity.defn(name="plan_follow_ups")
    async def plan_follow_ups(self, run: RunKey) -> FollowUpsPlanned:
        """Decide by the run's retry policy what is waited for; where something is, close the charging.

        Raises:
            StaleWrite: Some charge is not settled after all.
        """
        async with heartbeats():
            stands = await self._runs.read(run.run_id)
            if stands.phase in {"charging", "settling"} and not stands.canceling:
                await self._plan(run, stands.slices or 0, policy_of(stands.request))
            due = await self._follow_ups.due(run.run_id)
            if due.open and not stands.canceling:
                await self._closer.close_charging(run)
            return FollowUpsPlanned(
                retries=due.retries,
                customers=due.customers,
                debits=due.debits,
                notifications=await self._closer.announced(run),
            )

    @activity.defn(name="read_follow_ups_due")
    async def read_follow_ups_due(self, run: RunKey) -> FollowUpsDue:
        """Say what is waited for and when it can be looked at next."""
        waiting = await self._follow_ups.due(run.run_id)
        charges = due_of(await self._runs.due(run.run_id))
        return FollowUpsDue(
            open=waiting.open,
            due_now=waiting.due_now,
            next_due_seconds=waiting.next_due_seconds,
            next_due_epoch_seconds=waiting.next_due_epoch_seconds,
            charges=charges,
        )

    @activity.defn(name="follow_up_due")
    async def follow_up_due(self, run: RunKey) -> FollowedUp:
        """Claim what is due and take it one step on. Credentials that are refused hold the run.

        Raises:
            RefusedToStart: This process has no credentials for the account: another one may.
        """
        async with heartbeats(), watching(self._control, run.run_id) as watch:
            if watch.halted is not None:
                return FollowedUp(halted=watch.halted, halted_kind=HoldKind.BREAKER)
            try:
                parts = await self._accounts.of(run)
                # A key that charges lists no payment methods: how somebody pays is asked by one that reads.
                reading = await self._accounts.of(run, READING)
            except CredentialsRefused as refused:
                return FollowedUp(
                    halted=f"{refused}; mend that, then resume the run", halted_kind=HoldKind.BREAKER
                )
            policy = policy_of((await self._runs.read(run.run_id)).request)
            claimed = await self._follow_ups.claim(run.run_id, limit=DUE_BATCH_MAX)
            # Who is tried again was declined before: no rate of declines says that something is wrong.
            breaker = Breaker(declines_accepted=True)
            step = self._step(parts, PaymentMethods(reading), policy, watch, breaker)
            done = await self._take(step, claimed, breaker, parts.requests_at_once)
            return FollowedUp(
                settled=done[Done.WENT_ON],
                deferred=done[Done.PUT_OFF],
                held=done[Done.LEFT],
                halted=breaker.reason,
                halted_kind=_kind_of(breaker.trip),
                closes_by_itself=breaker.trip is Trip.SILENCE,
                notifications=await self._closer.announced(run),
            )

    async def _plan(self, run: RunKey, slices: int, policy: RetryPolicy) -> None:
        for slice_no in range(slices):
            for _ in range(PLAN_TRIES_MAX):
                if await self._plan_slice(run, slice_no, policy):
                    break

    async def _plan_slice(self, run: RunKey, slice_no: int, policy: RetryPolicy) -> bool:
        """Begin to wait; return whether all charges still stood as they were when they were read."""
        waits: list[tuple[Charge, Wait]] = []
        ends: list[tuple[Charge, End]] = []
        for one in await self._follow_ups.candidates(run.run_id, slice_no):
            match begin_to_wait(policy, one):
                case Wait() as wait:
                    waits.append((one.charge, wait))
                case End() as end:
                    ends.append((one.charge, end))
        opened = await self._follow_ups.open(run.run_id, waits)
        await self._follow_ups.note_not_retried(ends)
        return opened == len(waits)

    async def _take(
        self, step: FollowUpStep, claimed: Sequence[Followed], breaker: Breaker, at_once: int
    ) -> Counter[Done]:
        done: Counter[Done] = Counter()
        waiting = iter(claimed)

        async def take_next() -> None:
            for followed in waiting:
                if breaker.reason is not None or activity.is_worker_shutdown():
                    return  # as it is, for the next pass
                done[await step.take(followed)] += 1

        with first_error():
            async with asyncio.TaskGroup() as group:
                for _ in range(min(at_once, len(claimed))):
                    group.create_task(take_next())
        return done

    def _step(
        self,
        parts: AccountParts,
        methods: PaymentMethods,
        policy: RetryPolicy,
        watch: RunWatch,
        breaker: Breaker,
    ) -> FollowUpStep:
        skew = self._skew.setdefault(parts.account.id, SkewWatch())
        sender = Sender(
            ledger=self._charges,
            gateway=parts.gateway,
            limiter=parts.limiter,
            account=parts.account,
            places=parts.places,
            skew=skew,
        )
        settler = Settler(
            ledger=self._charges,
            gateway=parts.gateway,
            limiter=parts.limiter,
            sender=sender,
            account=parts.account,
            skew=skew,
        )
        return FollowUpStep(
            ledger=self._follow_ups,
            sender=sender,
            settler=settler,
            reopener=Reopener(ledger=self._charges, sender=sender, settler=settler),
            methods=methods,
            policy=policy,
            watch=watch,
            breaker=breaker,
        )


def policy_of(request: Mapping[str, Any] | None) -> RetryPolicy:
    """Return the policy that was frozen with a run's request."""
    frozen = (request or {}).get("retry_policy")
    return DEFAULT_POLICY if frozen is None else _POLICY.validate_python(frozen)


def begin_to_wait(policy: RetryPolicy, one: Candidate) -> Wait | End:
    """Return what is waited for with a charge, or why nothing is."""
    found = begin(policy, one.charge.state, one.decline, changed_at=one.changed_at)
    if isinstance(found, End) and one.charge.state is State.DECLINED and one.undetermined:
        return cancel_first(found, changed_at=one.changed_at)
    return found


def _kind_of(trip: Trip | None) -> HoldKind | None:
    if trip is None:
        return None
    return HoldKind.CAP if trip is Trip.CAP else HoldKind.BREAKER
