"""The charging activities: claim under a fence, carry concurrently, report counts.

Declines and unknown outcomes are values in the ledger, not exceptions; what raises here is infrastructure,
and Temporal retries it without a maximum.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.carry import Breaker, Carrier, End
from activities.crash_points import CrashPoint, reach
from activities.first_error import first_error
from activities.gateway.requests import StripeAccount
from activities.gateway.stripe_gateway import StripeGateway
from activities.heartbeat import heartbeats
from activities.ledger.charges import ChargeLedger
from activities.limiter import Limiter
from activities.send import Sender
from activities.settle import Settler
from workflows import contracts
from workflows.contracts import Progress, RunKey, Slice
from workflows.domain.charge import Charge
from workflows.domain.errors import RefusedToStart

DUE_BATCH_MAX = 500
CARRIED_PER_REQUEST = 2  # while one charge's request is out, another's commit is on its way to the disk


class ChargeActivities(contracts.ChargeActivities):
    """Charges slices and settles what is due, with the pool, gateway and limiter of this process."""

    def __init__(
        self,
        *,
        ledger: ChargeLedger,
        gateway: StripeGateway,
        limiter: Limiter,
        account: StripeAccount,
        requests_at_once: int,
    ) -> None:
        self._ledger = ledger
        self._account = account
        self._sender = Sender(
            ledger=ledger,
            gateway=gateway,
            limiter=limiter,
            account=account,
            requests_at_once=requests_at_once,
        )
        self._settler = Settler(
            ledger=ledger, gateway=gateway, limiter=limiter, sender=self._sender, account=account
        )
        self._carried_at_once = requests_at_once * CARRIED_PER_REQUEST
        self._places = asyncio.Semaphore(self._carried_at_once)

    @activity.defn(name="charge_slice")
    async def charge_slice(self, work: Slice) -> Progress:
        """Claim a slice, settle what an earlier attempt left in flight, charge the rest."""
        self._refuse_other_account(work.run)
        async with heartbeats():
            charges = await self._ledger.claim_slice(work.run.run_id, work.slice_no)
            reach(CrashPoint.SLICE_AFTER_CLAIM)
            return await self._carry_all(charges)

    @activity.defn(name="settle_due")
    async def settle_due(self, run: RunKey) -> Progress:
        """Claim what is due anywhere in the run and carry it on."""
        self._refuse_other_account(run)
        async with heartbeats():
            charges = await self._ledger.claim_due(run.run_id, limit=DUE_BATCH_MAX)
            return await self._carry_all(charges)

    async def _carry_all(self, charges: Sequence[Charge]) -> Progress:
        breaker = Breaker()
        carrier = Carrier(
            ledger=self._ledger,
            sender=self._sender,
            settler=self._settler,
            breaker=breaker,
            is_draining=activity.is_worker_shutdown,
        )
        waiting = iter(charges)
        ends: Counter[End] = Counter()

        async def carry_next() -> None:
            for charge in waiting:
                async with self._places:
                    ends[await carrier.carry(charge)] += 1

        with first_error():
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._carried_at_once, len(charges))):
                    group.create_task(carry_next())
        if breaker.reason is None and ends[End.LEFT]:
            # A deploy is no failure: the next attempt starts at once, on another worker.
            raise ApplicationError(
                "the worker is shutting down",
                type="WorkerShutdown",
                category=ApplicationErrorCategory.BENIGN,
                next_retry_delay=timedelta(milliseconds=1),
            )
        return Progress(settled=ends[End.SETTLED], deferred=ends[End.DEFERRED], halted=breaker.reason)

    def _refuse_other_account(self, run: RunKey) -> None:
        if run.account != self._account.id:
            raise RefusedToStart(f"this worker charges for {self._account.id}, not for {run.account}")
