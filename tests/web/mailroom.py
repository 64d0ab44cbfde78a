"""Stripe's events on their way into a scene's ledger: fetched, delivered in any order, worked through."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from activities.accounts import AccountKeys, Accounts, Credentials
from activities.gateway.stripe_gateway import StripeGateway
from activities.inbox import InboxWorker
from activities.ledger.inbox import EventState, InboxLedger, Received
from activities.ledger.money_back import MoneyBackLedger
from deploy.stripe_sim.rendering import render_event
from tests.activities.local_limiter import LocalLimiter
from tests.activities.scene import ACCOUNT, API_KEY, RATE_PER_SECOND, Scene
from workflows.domain.webhook_event import read_event


@dataclass
class Mailroom:
    """A scene's inbox, and whoever works through it."""

    scene: Scene
    accounts: Accounts
    inbox: InboxLedger
    money_back: MoneyBackLedger
    workers: list[InboxWorker] = field(default_factory=list)

    def worker(self, *, in_flight_seconds: float = 0.0) -> InboxWorker:
        """Return what works through the inbox, as a process of its own would have it."""
        return InboxWorker(self.scene.pool, self.accounts, in_flight_seconds=in_flight_seconds)

    def bodies(self, *, since: int = 0) -> list[bytes]:
        """Return Stripe's events so far, as they would be delivered, in the order in which they happened."""
        account = self.scene.sim.simulator.account(ACCOUNT.id)
        numbers = range(since, len(account.events))
        return [
            json.dumps(render_event(account, account.events.read(number)), indent=2).encode()
            for number in numbers
        ]

    async def deliver(self, *bodies: bytes, account: str = ACCOUNT.id) -> list[bool]:
        """Keep events as the receiver does once it believes them; return which of them were new."""
        received = [Received(read_event(body), account) for body in bodies]
        return list(await asyncio.gather(*(self.inbox.keep(one) for one in received)))

    async def work(self, worker: InboxWorker | None = None) -> int:
        """Work through everything that is due; return how many objects Stripe was asked for."""
        worker, looks = worker or self.worker(), 0
        while (done := await worker.work(limit=1_000)).events:
            looks += done.looks
        return looks

    async def take_in(self, *bodies: bytes) -> int:
        """Deliver events one after the other, each worked through before the next; return the looks."""
        looks = 0
        for body in bodies:
            await self.deliver(body)
            looks += await self.work()
        return looks

    async def states(self) -> dict[str, int]:
        """Return how many events there are in each state."""
        return await self.inbox.count()

    async def reasons(self, state: EventState) -> list[str]:
        """Return what is said about the events in a state, oldest first."""
        rows = await self.inbox.newest(states=[state], limit=1_000)
        return [row["reason"] for row in reversed(rows)]


@asynccontextmanager
async def open_mailroom(scene: Scene) -> AsyncIterator[Mailroom]:
    """Open a mailroom beside a scene."""
    accounts = Accounts(
        AccountKeys(key=SecretStr(API_KEY), api_base=scene.sim.url),
        open_gateway=open_gateway,
        limiter_of=lambda _: LocalLimiter(RATE_PER_SECOND),
        requests_at_once=16,
        slices_at_once=4,
    )
    try:
        yield Mailroom(scene, accounts, InboxLedger(scene.pool), MoneyBackLedger(scene.pool))
    finally:
        await accounts.close()


def open_gateway(credentials: Credentials) -> StripeGateway:
    """Return a gateway with connections of its own."""
    return StripeGateway(api_key=credentials.api_key.get_secret_value(), api_base=credentials.api_base)


def types_of(bodies: Sequence[bytes]) -> list[str]:
    """Return the types of events."""
    return [json.loads(body)["type"] for body in bodies]


def changed(body: bytes, **fields: Any) -> bytes:
    """Return an event with other fields: a forged one, signed all the same."""
    return json.dumps({**json.loads(body), **fields}).encode()
