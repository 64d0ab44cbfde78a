"""The receiver as a process, under load from another one, and killed while it works."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from activities.ledger.database import open_pool
from activities.ledger.migrate import migrate
from deploy.ports import choose_port
from deploy.postgres import GRANTED_ROLES, Database, PostgresServer
from deploy.stripe_sim.testing import running_sim
from tests.activities.scene import ACCOUNT, CONFIRM, CREATE, GOOD_CARD, Scene
from tests.web.mailroom import Mailroom, changed, open_mailroom
from tests.web.postbox import SECRET
from worker.inbox_loop import working_inbox
from worker.web.app import WEBHOOK_PATH

ROOT = Path(__file__).resolve().parents[2]
CONNECTIONS = 48
DEADLINE_SECONDS = 120


@dataclass
class WebProcess:
    """`python -m worker.web`, on one port however often it is started."""

    database: Database
    folder: Path
    port: int
    process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Where Stripe delivers."""
        return f"http://127.0.0.1:{self.port}{WEBHOOK_PATH}"

    async def start(self) -> None:
        """Start it and return once it listens."""
        ready = self.folder / "web.ready"
        ready.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "CHARGEONCE_DATABASE_URL": self.database.web_url,
            "CHARGEONCE_WEBHOOK_SECRETS": f"{ACCOUNT.id}={SECRET}",
            "CHARGEONCE_WEB_PORT": str(self.port),
            "CHARGEONCE_WEB_READY_FILE": str(ready),
        }
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "worker.web", cwd=ROOT, env=environment
        )
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not ready.exists():
                assert self.process.returncode is None
                await asyncio.sleep(0.02)

    def cpu_seconds(self) -> float:
        """Return the CPU time that the process has used: a busy machine slows it down, and costs it none."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def kill(self) -> None:
        """End it with SIGKILL."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def web_process(database: Database, folder: Path) -> AsyncIterator[WebProcess]:
    """A running receiver."""
    web = WebProcess(database, folder, choose_port(None))
    await web.start()
    try:
        yield web
    finally:
        assert web.process is not None
        if web.process.returncode is None:
            web.process.send_signal(signal.SIGTERM)
            assert await web.process.wait() == 0


@asynccontextmanager
async def hammering(url: str, bodies: Sequence[bytes]) -> AsyncIterator["asyncio.Task[dict[str, Any]]"]:
    """A process that delivers these events; the task ends with what came of them."""
    order = {
        "url": url,
        "secret": SECRET,
        "bodies": [body.decode() for body in bodies],
        "connections": CONNECTIONS,
    }
    hammer = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.web.hammer",
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=64 * 1024 * 1024,
    )
    assert hammer.stdin is not None
    assert hammer.stdout is not None
    hammer.stdin.write(json.dumps(order).encode())
    hammer.stdin.close()
    assert await hammer.stdout.readline() == b"acknowledged\n"
    task = asyncio.create_task(_read_result(hammer))
    try:
        yield task
    finally:
        if hammer.returncode is None:
            hammer.kill()
            await hammer.wait()


async def _read_result(hammer: asyncio.subprocess.Process) -> dict[str, Any]:
    assert hammer.stdout is not None
    result: dict[str, Any] = json.loads(await hammer.stdout.readline())
    await hammer.wait()
    return result


async def leave_unanswered(scene: Scene, count: int) -> None:
    """Leave so many charges in `confirming`, paid at Stripe, their answers lost."""
    worker = scene.worker()
    await scene.plan([GOOD_CARD] * count)
    for charge in await worker.claim():
        sent = await worker.sender.send_first(charge, CREATE, reason="planned")
        await worker.transmit(await worker.intend(sent.charge, CONFIRM))


def fillers(body: bytes, count: int) -> list[bytes]:
    """Return so many events that are none of our charges' business, as large as a real one."""
    return [changed(body, id=f"evt_filler_{number}", type="customer.updated") for number in range(count)]


@pytest.mark.proof
@pytest.mark.timeout(DEADLINE_SECONDS)
async def test_acknowledgements_per_second(scene: Scene, mail: Mailroom, tmp_path: Path) -> None:
    """Two thousand a second and more from another process, 99 of 100 within 50 ms."""
    await leave_unanswered(scene, 1)
    body = mail.bodies()[-1]
    async with web_process(scene.database, tmp_path) as web:
        async with hammering(web.url, fillers(body, 2_000)) as warm:
            await warm
        letters = [
            changed(body, id=f"evt_load_{number}", type="customer.updated") for number in range(20_000)
        ]
        before = web.cpu_seconds()
        async with hammering(web.url, letters) as running:
            result = await running
        cpu_milliseconds = (web.cpu_seconds() - before) * 1_000 / len(letters)
    rate = len(result["acknowledged"]) / result["seconds"]
    waits = sorted(result["milliseconds"])
    p50, p99 = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
    print(
        f"{rate:,.0f} events/s of {len(body):,} bytes over {CONNECTIONS} connections, acknowledged in"
        f" {p50:.1f} ms (p50), {p99:.1f} ms (p99); {cpu_milliseconds:.2f} ms of the receiver's CPU each;"
        f" load of the machine {os.getloadavg()[0]:.1f}"
    )
    assert await scene.pool.fetchval("SELECT count(*) FROM inbox_events") == 22_000
    assert rate >= 2_000
    assert p99 <= 50


@pytest.mark.proof
@pytest.mark.timeout(2 * DEADLINE_SECONDS)
async def test_nothing_acknowledged_is_lost_and_nothing_applied_twice(tmp_path: Path) -> None:
    """SIGKILL for the receiver and for PostgreSQL, twice each, under load, beside a working inbox."""
    server = PostgresServer(tmp_path / "postgres")
    await server.start()
    try:
        database = await server.create_database("ledger_of_kills")
        await migrate(database.owner_url, **GRANTED_ROLES, movable_clock=True)
        async with (
            running_sim() as sim,
            open_pool(database.app_url, connections=6) as pool,
        ):
            owner = await asyncpg.connect(database.owner_url)
            scene = Scene(sim, database, pool, owner)
            await scene.set_age(0)
            await leave_unanswered(scene, 200)
            async with open_mailroom(scene) as mail, web_process(database, tmp_path) as web:
                events = mail.bodies()
                letters = [*events, *fillers(events[-1], 12_000)]
                async with (
                    working_inbox(mail.worker(), database.app_url, sweep_seconds=0.2),
                    hammering(web.url, letters) as running,
                ):
                    for _ in range(2):
                        await web.kill()
                        await web.start()
                        server.kill()
                        await server.start()
                        await asyncio.sleep(0.5)  # of load in between
                    result = await running
                    await judge(scene, mail, result, events, letters)
            for gateway in scene.gateways:
                await gateway.close()
            owner.terminate()
    finally:
        await server.stop()


async def judge(
    scene: Scene, mail: Mailroom, result: dict[str, Any], events: Sequence[bytes], letters: Sequence[bytes]
) -> None:
    """Every acknowledged event is in the table, every charge is paid once, each effect was applied once."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while await scene.pool.fetchval("SELECT count(*) FROM inbox_events WHERE state = 'waiting'"):
            if await scene.pool.fetchval(
                "SELECT count(*) FROM inbox_events WHERE claimed_until > clock_timestamp()"
            ):
                await asyncio.sleep(0.2)
            # What was put off while the database was away is due by a clock that stands still.
            await scene.pool.execute(
                "UPDATE inbox_events SET due_at = ledger_now() WHERE state = 'waiting' AND claim IS NULL"
            )
            await asyncio.sleep(0.1)
    kept = {row["event_id"] for row in await scene.pool.fetch("SELECT event_id FROM inbox_events")}
    assert len(set(result["acknowledged"])) == len(letters)
    assert set(result["acknowledged"]) <= kept
    states = await scene.pool.fetch("SELECT state, count(*) AS n FROM charges GROUP BY 1")
    assert [(row["state"], row["n"]) for row in states] == [("succeeded", 200)]
    applied = await scene.pool.fetch(
        "SELECT charge_id, count(*) AS n FROM decisions WHERE decision = 'settled_by_webhook' GROUP BY 1"
    )
    assert len(applied) == 200
    assert {row["n"] for row in applied} == {1}
    assert len(scene.sim.movements) == 200
    print(
        f"{len(kept):,} events kept, {len(events)} of charges, {result['repeated']} deliveries repeated after"
        f" kills; inbox {await mail.states()}"
    )
