"""A worker dies with requests in flight: how many are sent again, and how many lookups it takes."""

import asyncio
from pathlib import Path

import asyncpg
from pydantic import BaseModel, ConfigDict

from deploy.bench.book import charged_once, read_journal, read_summary
from deploy.bench.durable import Bench, running_bench
from deploy.stripe_sim.client import call_sim
from workflows.domain.errors import ChargeonceError

RATE_PER_SECOND = 100
LATENCY_MS = 200  # about what Stripe takes, and long enough for requests to be in flight
KILL_AT_SHARE = 0.4
_WATCH_SECONDS = 0.02
_UNANSWERED = """
SELECT count(*) AS sends, count(DISTINCT keys.charge_id) AS charges
  FROM attempts JOIN keys USING (key) WHERE answered_at IS NULL
"""

# A close reads the account's pages to look for double charges, whether anybody was killed or not.
_PAGES_OF_CLOSES = """
SELECT coalesce(sum((report #>> '{double_charges,requests}')::bigint), 0)::bigint FROM billing_runs
"""
_LOOKED_UP = "/v1/payment_intents"


class KillReport(BaseModel):
    """What a kill -9 cost. `in_flight` are sends whose intent was committed and whose answer was not."""

    model_config = ConfigDict(frozen=True)

    charges: int
    in_flight: int
    customers_affected: int
    repeated_requests: int
    lookups: int
    payments: int
    double_charges: int


async def measure_kill(home: Path, charges: int) -> KillReport:
    """Kill the only worker once 40 % are charged, let the stack start another, and wait for the end.

    Raises:
        BookDisagrees: Not everybody was charged, or someone twice.
        ChargeonceError: The run was over before the worker could be killed.
    """
    settings = {"rate_per_second": str(RATE_PER_SECOND)}
    async with running_bench(home / "kill", settings) as bench:
        await asyncio.to_thread(call_sim, bench.url, "PATCH", "/_sim/settings", {"latency_ms": LATENCY_MS})
        before = await asyncio.to_thread(read_summary, bench.url)
        handle = await bench.start("k", charges)
        await _wait_until_charged(bench, round(charges * KILL_AT_SHARE))
        bench.stack.kill_worker(0)
        in_flight, affected = await _count_unanswered(bench)
        if not in_flight:
            raise ChargeonceError("the worker died with nothing in flight: nothing is shown by that")
        await bench.stack.restart_worker(0)
        await handle.result()
        await asyncio.to_thread(charged_once, bench.url, before, charges)
        after = await asyncio.to_thread(read_summary, bench.url)
        looked_up = sum(
            entry["method"] == "GET" and entry["path"].startswith(_LOOKED_UP)
            for entry in read_journal(bench.url, before["requests"])
        )
        return KillReport(
            charges=charges,
            in_flight=in_flight,
            customers_affected=affected,
            repeated_requests=after["repeated_posts"] - before["repeated_posts"],
            lookups=looked_up - await _count_pages_of_closes(bench),
            payments=after["movements"] - before["movements"],
            double_charges=len(after["double_charges"]),
        )


async def _wait_until_charged(bench: Bench, wanted: int) -> None:
    while True:
        summary = await asyncio.to_thread(read_summary, bench.url)
        if summary["movements"] >= wanted:
            return
        await asyncio.sleep(_WATCH_SECONDS)


async def _count_pages_of_closes(bench: Bench) -> int:
    connection = await asyncpg.connect(bench.stack.info.owner_database_url)
    try:
        return int(await connection.fetchval(_PAGES_OF_CLOSES))
    finally:
        await connection.close()


async def _count_unanswered(bench: Bench) -> tuple[int, int]:
    connection = await asyncpg.connect(bench.stack.info.owner_database_url)
    try:
        row = await connection.fetchrow(_UNANSWERED)
        return (0, 0) if row is None else (row["sends"], row["charges"])
    finally:
        await connection.close()
