"""Proxy processes that can be killed at any moment, in front of one simulator and one ledger."""

import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import asyncpg

from deploy.postgres import Database
from deploy.stripe_sim.testing import RunningSim, running_sim
from tests.forking import Forked, Nursery
from tests.proxy.stage import REAL_KEY, Caller

START_SECONDS = 30.0
SWEEP_ROUNDS = 4  # what nobody named is found, then looked at, then its charges are


@dataclass
class ProxyProcess:
    """One proxy process; it keeps its port when it is started again."""

    name: str
    folder: Path
    environment: dict[str, str]
    nursery: Nursery
    port: int = 0
    process: Forked | None = None

    @property
    def url(self) -> str:
        """Where it listens, or did."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def lives(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.returncode is None

    async def start(self, **more: str) -> None:
        """Start it and wait until it serves."""
        ready = self.folder / f"{self.name}.ready"
        ready.unlink(missing_ok=True)
        environment = {
            **os.environ,
            **self.environment,
            "CHARGEONCE_PROXY_PORT": str(self.port),
            "CHARGEONCE_PROXY_READY_FILE": str(ready),
            **more,
        }
        log = self.folder / f"{self.name}.log"
        self.process = self.nursery.fork("tests.proxy.dying_proxy:main", environment=environment, output=log)
        async with asyncio.timeout(START_SECONDS):
            while not ready.exists() or not ready.read_text():
                assert self.lives, self.log()
                await asyncio.sleep(0.005)
        self.port = int(json.loads(ready.read_text())["url"].rpartition(":")[2])

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it with SIGKILL."""
        if self.process is not None:
            self.process.send_signal(number)
        await self.wait_for_death()

    async def wait_for_death(self) -> None:
        """Wait until it is gone."""
        if self.process is not None:
            await asyncio.wait_for(self.process.wait(), START_SECONDS)

    def log(self) -> str:
        """What it wrote."""
        path = self.folder / f"{self.name}.log"
        return path.read_text() if path.exists() else ""


@dataclass
class TwoProxies:
    """The processes, the simulator, and hands on both."""

    database: Database
    sim: RunningSim
    proxies: list[ProxyProcess]
    session: aiohttp.ClientSession
    owner: "asyncpg.Pool[asyncpg.Record]"
    kills: int = 0
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    def caller(self, key: str, dice: random.Random) -> Caller:
        """Return a caller that goes through either proxy."""
        return Caller(self.session, dice.choice(self.proxies).url, key)

    async def kill_at_random(self, dice: random.Random, *, pause_seconds: tuple[float, float]) -> None:
        """Kill and restart one proxy after the other until cancelled; both live in the end."""
        while True:
            await asyncio.sleep(dice.uniform(*pause_seconds))
            await asyncio.shield(self._kill_one(dice.choice(self.proxies)))

    async def _kill_one(self, victim: ProxyProcess) -> None:
        async with self.busy:
            await victim.kill()
            self.kills += 1
            await victim.start()

    async def sweep(self, budgets: list[str], *, rounds: int = SWEEP_ROUNDS) -> None:
        """Have the proxies look at all that these budgets hold, so often unless it is settled before."""
        held = "held_minor > 0 AND budget = ANY ($1)"
        for _ in range(rounds):
            async with self.owner.acquire() as connection, connection.transaction():
                await connection.execute("SELECT vault_take_turn()")
                await connection.execute(
                    "UPDATE vault_intents SET looks = 0, next_look_at = ledger_now() - interval '1 hour'"
                    f" WHERE {held}",
                    budgets,
                )
                since = await connection.fetchval("SELECT last_value FROM vault_call_order")
            await self._until(
                f"SELECT NOT EXISTS (SELECT FROM vault_intents WHERE {held} AND looks = 0)", budgets
            )
            # A look asks Stripe page by page: none is under way once all asked for has its answer, twice.
            for _ in range(2):
                await self._until(
                    "SELECT NOT EXISTS (SELECT FROM vault_calls c LEFT JOIN vault_answers a USING (call_id)"
                    " WHERE c.key_id IS NULL AND c.seq > $1 AND a.call_id IS NULL)",
                    since,
                )
                await self.recorded()
            if not await self.owner.fetchval(f"SELECT count(*) FROM vault_intents WHERE {held}", budgets):
                return

    async def _until(self, question: str, argument: object) -> None:
        async with asyncio.timeout(START_SECONDS):
            while not await self.owner.fetchval(question, argument):  # noqa: ASYNC110 - nobody signals
                await asyncio.sleep(0.02)

    async def recorded(self) -> None:
        """Wait until every answer that a living proxy has is in the ledger."""
        async with asyncio.timeout(START_SECONDS):
            for proxy in self.proxies:
                waiting = 1
                while waiting:
                    async with self.session.get(f"{proxy.url}/_proxy/health") as response:
                        waiting = (await response.json())["unrecorded"]


def proxy_environment(database: Database, sim_url: str) -> dict[str, str]:
    """What a proxy process needs in its environment."""
    return {
        "CHARGEONCE_PROXY_DATABASE_URL": database.proxy_url,
        "CHARGEONCE_PROXY_TIMEOUT_SECONDS": "8",
        "CHARGEONCE_PROXY_SWEEP_SECONDS": "0.2",
        "CHARGEONCE_PROXY_UNKNOWN_AFTER_SECONDS": "0",
        "CHARGEONCE_PROXY_DATABASE_CONNECTIONS": "3",
        "CHARGEONCE_STRIPE_API_BASE": sim_url,
        "STRIPE_SECRET_KEY": REAL_KEY,
    }


@asynccontextmanager
async def open_two_proxies(
    database: Database, folder: Path, nursery: Nursery, *, count: int = 2, **settings: str
) -> AsyncIterator[TwoProxies]:
    """Yield running proxies and end them afterwards."""
    async with (
        running_sim() as sim,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
        asyncpg.create_pool(database.owner_url, min_size=1, max_size=4) as owner,
    ):
        environment = proxy_environment(database, sim.url) | settings
        proxies = [ProxyProcess(f"proxy-{number}", folder, environment, nursery) for number in range(count)]
        try:
            await asyncio.gather(*(proxy.start() for proxy in proxies))
            yield TwoProxies(database, sim, proxies, session, owner)
        finally:
            await asyncio.gather(*(proxy.kill() for proxy in proxies))
