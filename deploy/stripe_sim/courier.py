"""Webhooks: takes events, decides when each goes to which endpoint, and tries again.

Times are the simulator's, so that moving its clock makes retries due; only the wire itself takes real time.
Nothing here costs anything while no endpoint is registered.
"""

import asyncio
import heapq
import json
import sys
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from deploy.stripe_sim.deliveries import Attempt, Deliveries, Delivery
from deploy.stripe_sim.objects import WebhookEndpoint
from deploy.stripe_sim.rendering import render_event
from deploy.stripe_sim.signing import sign
from deploy.stripe_sim.store import AccountData
from deploy.stripe_sim.webhook_plan import WebhookPlan, parse_webhook_plan
from deploy.stripe_sim.webhook_sender import Sender

if TYPE_CHECKING:
    from deploy.stripe_sim.simulator import Simulator

REORDER_SECONDS: Final = 60.0
LOOK_SECONDS_MAX: Final = 3_600.0


class Courier:
    """Everything about webhooks that changes while the simulator runs."""

    def __init__(self, simulator: "Simulator") -> None:
        self.plan = WebhookPlan(seed=simulator.seed)
        self.deliveries = Deliveries(simulator.log)
        self._simulator = simulator
        self._sender = Sender(lambda: simulator.settings)
        self._endpoints: list[tuple[AccountData, WebhookEndpoint]] = []
        self._later: list[tuple[float, int, Delivery]] = []
        self._numbers = count(1)
        self._lanes: dict[str, deque[Delivery]] = {}
        self._running: dict[str, int] = {}
        self._held: dict[str, list[Delivery]] = {}
        self._urgent: list[asyncio.Task[None]] = []
        self._is_closing = False
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._settle: Callable[[], None] = _do_nothing

    def look_around(self) -> None:
        """Find out which endpoints there are; to be called whenever one was made, changed or deleted."""
        self._endpoints = [
            (account, endpoint)
            for account in self._simulator.accounts.values()
            for endpoint in account.endpoints.in_order
            if not endpoint.deleted and not endpoint.disabled
        ]

    def take(self, account: AccountData, number: int) -> None:
        """Take an event that has just been made."""
        for owner, endpoint in self._endpoints:
            is_other = owner is not account
            if endpoint.connect is is_other and _listens(endpoint, account.events.type_of(number)):
                self._dispatch(Delivery(account, number, owner, endpoint.id))

    def resend(self, account: AccountData, number: int) -> int:
        """Send an event to its endpoints once more, as the Dashboard can, and return to how many."""
        sent = 0
        for owner, endpoint in self._endpoints:
            is_other = owner is not account
            if endpoint.connect is is_other and _listens(endpoint, account.events.type_of(number)):
                self._queue(Delivery(account, number, owner, endpoint.id, is_copy=True))
                sent += 1
        return sent

    def replace_faults(self, document: Any) -> None:
        """Put the faults of a JSON document in force; raises WebhookPlanError."""
        self.plan.replace(parse_webhook_plan(document))
        self._simulator.log.append("webhook faults", document)

    @property
    def has_urgent(self) -> bool:
        """Whether something must arrive before the request that caused it is answered."""
        return bool(self._urgent)

    async def send_urgent(self) -> None:
        """Send what must arrive before the request that caused it is answered."""
        urgent, self._urgent = self._urgent, []
        await asyncio.gather(*urgent)

    def pending(self) -> list[dict[str, Any]]:
        """Return what waits for its time, soonest first, as the admin API shows it."""
        shown = []
        for at, _, delivery in sorted(self._later, key=lambda entry: entry[:2])[:1_000]:
            event_id = delivery.account.events.id_of(delivery.number)
            shown.append(
                {"at": at, "event": event_id, "endpoint": delivery.endpoint_id, "attempt": delivery.attempt}
            )
        return shown

    def wake(self) -> None:
        """Look again at what is due: something new is on the agenda."""
        self._wake.set()

    async def idle(self) -> None:
        """Wait until nothing is due and nothing is on the wire."""
        while True:
            self._settle()
            self._release_due()
            if not self._tasks:
                return
            await asyncio.wait(set(self._tasks), return_when=asyncio.FIRST_COMPLETED)

    @asynccontextmanager
    async def running(self, settle: Callable[[], None]) -> AsyncIterator[None]:
        """Deliver what is due by itself as long as the context lasts; `settle` does whatever else is due."""
        self._settle, self._wake, self._is_closing = settle, asyncio.Event(), False
        self._simulator.clock.on_move.append(self.wake)
        self.look_around()
        for at, delivery in self.deliveries.take_unfinished(self._simulator):
            self._put_off(at, delivery)
        ticker = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            self._simulator.clock.on_move.remove(self.wake)
            self._is_closing = True
            tasks = [ticker, *self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._sender.close()

    def restore_faults(self, document: Any) -> None:
        """Take the faults in force from the log."""
        self.plan.replace(parse_webhook_plan(document))

    async def _tick(self) -> None:
        while True:
            self._wake.clear()
            try:
                self._settle()
                self._release_due()
            except Exception:  # noqa: BLE001 - a mistake of the simulator must not silence all webhooks
                traceback.print_exc(file=sys.stderr)
            # Not wait_for: in Python 3.11 it can swallow a cancellation that comes with the wake-up.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._seconds_to_wait()):
                    await self._wake.wait()

    def _seconds_to_wait(self) -> float:
        clock = self._simulator.clock
        times = [at for at in (self._simulator.agenda.next_at(),) if at is not None]
        times += [self._later[0][0]] if self._later else []
        if not times or clock.frozen_at is not None:
            return LOOK_SECONDS_MAX
        return min(LOOK_SECONDS_MAX, max(0.001, min(times) - clock.now()))

    def _dispatch(self, delivery: Delivery) -> None:
        events, endpoint_id = delivery.account.events, delivery.endpoint_id
        now = self._simulator.clock.now()
        event_id, event_type = events.id_of(delivery.number), events.type_of(delivery.number)
        delivery.faults = self.plan.meet(event_id, event_type, endpoint_id, 1)
        effects = {fault.effect.kind: fault.effect for fault in delivery.faults}
        self.deliveries.begin(delivery, at=now)
        delivery.due_at = now
        if "drop" in effects:
            self.deliveries.give_up(delivery)
            self._write_down(delivery, None, "dropped by a fault", None)
            return
        if "twin" in effects:
            twin = Delivery(delivery.account, events.copy(delivery.number), delivery.owner, endpoint_id)
            self.deliveries.begin(twin, at=now)
            self._put_off(now + effects["twin"].seconds, twin)
        if "duplicate" in effects:
            copy = Delivery(delivery.account, delivery.number, delivery.owner, endpoint_id, is_copy=True)
            self._put_off(now + effects["duplicate"].seconds, copy)
        if "before_response" in effects:
            self._urgent.append(self._go(self._attempt(delivery)))
        elif "reorder" in effects:
            delivery.waits_for = effects["reorder"].after
            self._held.setdefault(endpoint_id, []).append(delivery)
            self._put_off(now + (effects["reorder"].seconds or REORDER_SECONDS), delivery)
            return
        else:
            delay = effects["delay"].seconds if "delay" in effects else 0.0
            self._put_off(now + delay, delivery)
        self._let_pass(endpoint_id)

    def _let_pass(self, endpoint_id: str) -> None:
        for held in list(self._held.get(endpoint_id, ())):
            held.waits_for -= 1
            if held.waits_for <= 0:
                self._held[endpoint_id].remove(held)
                held.left_early = True
                self._queue(held)

    def _put_off(self, at: float, delivery: Delivery) -> None:
        delivery.due_at = at
        if at <= self._simulator.clock.now() and delivery.waits_for == 0:
            self._queue(delivery)
            return
        heapq.heappush(self._later, (at, next(self._numbers), delivery))
        self._wake.set()

    def _release_due(self) -> None:
        now = self._simulator.clock.now()
        while self._later and self._later[0][0] <= now:
            _, _, delivery = heapq.heappop(self._later)
            if delivery.left_early:
                continue
            if delivery.waits_for > 0:
                self._held[delivery.endpoint_id].remove(delivery)
            self._queue(delivery)

    def _queue(self, delivery: Delivery) -> None:
        self._lanes.setdefault(delivery.endpoint_id, deque()).append(delivery)
        self._start(delivery.endpoint_id)

    def _start(self, endpoint_id: str) -> None:
        lane = self._lanes[endpoint_id]
        most = max(1, int(self._simulator.settings.webhook_concurrency))
        while lane and not self._is_closing and self._running.get(endpoint_id, 0) < most:
            self._running[endpoint_id] = self._running.get(endpoint_id, 0) + 1
            self._go(self._work(endpoint_id, lane.popleft()))

    def _go(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _work(self, endpoint_id: str, delivery: Delivery) -> None:
        try:
            await self._attempt(delivery)
        finally:
            self._running[endpoint_id] -= 1
            self._start(endpoint_id)

    async def _attempt(self, delivery: Delivery) -> None:
        endpoint, events = delivery.endpoint, delivery.account.events
        if endpoint.deleted or endpoint.disabled:
            self.deliveries.give_up(delivery)
            self._write_down(delivery, None, "endpoint is gone", None)
            return
        event = events.read(delivery.number)
        if delivery.attempt > 1:
            delivery.faults = self.plan.meet(event.id, event.type, endpoint.id, delivery.attempt)
        if "fail" in delivery.fault_kinds:
            self._finish(delivery, None, "failed by a fault")
            return
        shown = render_event(
            delivery.account,
            event,
            of_connected_account=endpoint.connect,
            api_version=endpoint.api_version,
        )
        body = json.dumps(shown, indent=2).encode()
        status, outcome = await self._sender.post(endpoint.url, body, self._sign(delivery, body))
        self._finish(delivery, status, outcome)

    def _sign(self, delivery: Delivery, body: bytes) -> str:
        # By real time: the receiver's own check compares with its own clock, which nobody has moved.
        at, now = time.time(), self._simulator.clock.now()
        secrets = [secret for secret, until in delivery.endpoint.secrets if until is None or until > now]
        for fault in delivery.faults:
            if fault.effect.kind == "bad_signature":
                secrets = ["whsec_of_somebody_else"]
            elif fault.effect.kind == "old_signature":
                at -= fault.effect.seconds
        return sign(body, secrets, at_seconds=int(at))

    def _finish(self, delivery: Delivery, status: int | None, outcome: str) -> None:
        next_at: float | None = None
        retries = self._simulator.settings.webhook_retry_seconds
        if outcome == "delivered":
            self.deliveries.done(delivery)
        elif not delivery.is_copy and delivery.attempt <= len(retries):
            # From when it was due, not from now: a jump of the clock goes through every retry that it skips.
            next_at = delivery.due_at + retries[delivery.attempt - 1]
        elif not delivery.is_copy:
            self.deliveries.give_up(delivery)
        self._write_down(delivery, status, outcome, next_at)
        if next_at is not None:
            again = Delivery(
                delivery.account,
                delivery.number,
                delivery.owner,
                delivery.endpoint_id,
                delivery.attempt + 1,
            )
            self.deliveries.put_off(again, at=next_at)
            self._put_off(next_at, again)

    def _write_down(
        self, delivery: Delivery, status: int | None, outcome: str, next_at: float | None
    ) -> None:
        events = delivery.account.events
        self.deliveries.attempts.append(
            Attempt(
                at=self._simulator.clock.now(),
                event=events.id_of(delivery.number),
                type=events.type_of(delivery.number),
                account=delivery.account.id,
                endpoint=delivery.endpoint_id,
                url=delivery.endpoint.url,
                attempt=delivery.attempt,
                status=status,
                outcome=outcome,
                next_at=next_at,
                faults=tuple(fault.name for fault in delivery.faults),
            )
        )


def _listens(endpoint: WebhookEndpoint, event_type: str) -> bool:
    return "*" in endpoint.enabled_events or event_type in endpoint.enabled_events


def _do_nothing() -> None:
    return
