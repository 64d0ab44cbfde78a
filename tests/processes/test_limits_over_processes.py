"""Three processes, one limit: counted by the database's clock, and where the requests arrive."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from deploy.postgres import Database
from deploy.stripe_sim.journal import Request
from deploy.stripe_sim.testing import RunningSim, running_sim
from tests.processes.limited_sender import CARD, CUSTOMER

ROOT = Path(__file__).resolve().parents[2]
RATE_PER_SECOND = 50
SHARE_MIN = 0.97
SHARE_MIN_IN_COMPANY = 0.9  # other tests run on the same cores, and a slot that a busy machine misses is lost
WARM_UP_SECONDS = 1.0
PATHS = {"create": "/v1/payment_intents", "confirm": "/confirm"}
MOST_IN_A_SECOND = """
SELECT max(grants) FROM (
    SELECT count(*) OVER (
        ORDER BY slot RANGE BETWEEN CURRENT ROW AND interval '999.999 ms' FOLLOWING) AS grants
      FROM rate_grants WHERE endpoint = $1
) AS windows
"""


@asynccontextmanager
async def senders(database: Database, sim: RunningSim) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Three processes that send, after a warm-up."""
    sim.seed(CUSTOMER, CARD)
    started = [await start_sender(database, sim) for _ in range(3)]
    try:
        for process in started:
            assert process.stdout is not None
            assert await asyncio.wait_for(process.stdout.readline(), 30) == b"sending\n"
        await asyncio.sleep(WARM_UP_SECONDS)
        yield started
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def start_sender(database: Database, sim: RunningSim) -> asyncio.subprocess.Process:
    """Start one more."""
    arguments = [database.app_url, sim.url, str(RATE_PER_SECOND)]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.processes.limited_sender",
        *arguments,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )


def arrivals(sim: RunningSim, operation: str) -> list[Request]:
    """Return the requests of an operation, in the order of their arrival."""
    path = PATHS[operation]
    return [
        request
        for request in sim.requests
        if (request.path == path if operation == "create" else request.path.endswith(path))
    ]


async def check_limit(
    database: Database, sim: RunningSim, began: float, ended: float, *, share_min: float
) -> None:
    """Judge what was granted in all, and what arrived in a span of seconds since the epoch."""
    connection = await asyncpg.connect(database.app_url)
    try:
        for operation in PATHS:
            most = await connection.fetchval(MOST_IN_A_SECOND, operation)
            seen = [request for request in arrivals(sim, operation) if began <= request.received_at < ended]
            share = len(seen) / (ended - began) / RATE_PER_SECOND
            print(f"{operation}: at most {most} grants in a second, {share:.4f} of the limit used")
            assert most <= RATE_PER_SECOND
            assert [request.status for request in seen if request.status == 429] == []
            assert share >= share_min
    finally:
        await connection.close()


async def share_the_limit(database: Database, *, seconds: float, share_min: float) -> None:
    """Let three processes send for a while, then for as long again with one of them killed and replaced."""
    async with (
        running_sim(endpoint_rate_per_second=float(RATE_PER_SECOND)) as sim,
        senders(database, sim) as processes,
    ):
        began = time.time()
        await asyncio.sleep(seconds)
        await check_limit(database, sim, began, time.time(), share_min=share_min)
        began = time.time()
        processes[0].kill()
        processes.append(await start_sender(database, sim))
        await asyncio.sleep(seconds)
        await check_limit(database, sim, began, time.time(), share_min=share_min)


async def test_three_processes_share_a_limit(database: Database) -> None:
    """Never above 50 grants in a second, no 429, and hardly a slot unused; so, too, with one killed."""
    await share_the_limit(database, seconds=4, share_min=SHARE_MIN_IN_COMPANY)


@pytest.mark.proof
@pytest.mark.timeout(300)
async def test_three_processes_share_a_limit_for_minutes(database: Database) -> None:
    """The same for a minute each, and at least 0.97 of the limit is used."""
    await share_the_limit(database, seconds=60, share_min=SHARE_MIN)
