"""`python -m deploy.bench.proxy_overhead`: what the spend-cap proxy costs, next to the same calls without.

Both ways in one run, in turns, on the same machine: latency of confirms at a fixed rate, then as many
confirms as go through one proxy process that is held on one core.
"""

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from statistics import quantiles

import aiohttp
from pydantic import BaseModel, ConfigDict

from activities.ledger.database import open_pool
from activities.ledger.vault import VaultLedger
from activities.vault import issue_custom_key
from deploy.bench.cpu import read_cpu_seconds
from deploy.bench.customers import dues, seed
from deploy.bench.machine import Machine, describe_machine
from deploy.devstack import DevStack, StackOptions, running_stack
from workflows.domain.errors import invariant
from workflows.domain.vault import ENDPOINTS
from workflows.domain.vault_keys import Mode

ACCOUNT = "acct_sim"
CAP_MINOR = 10**12
CREATES_AT_ONCE = 32
WARM_UP_CALLS = 50
COMMITS = 200


class Latency(BaseModel):
    """Milliseconds of one way, of so many calls."""

    model_config = ConfigDict(frozen=True)

    calls: int
    p50: float
    p99: float


class ProxyReport(BaseModel):
    """What was seen. Latencies in milliseconds at `rate_per_second`, throughput in confirms per second.

    `commit_p50`: milliseconds that a commit to the ledger's disk takes, which every confirm waits for.
    """

    model_config = ConfigDict(frozen=True)

    machine: Machine
    rate_per_second: float
    commit_p50: float
    direct: Latency
    through: Latency
    confirms_per_second: float
    direct_confirms_per_second: float
    confirms_per_proxy_cpu_second: float
    at_once: int


@dataclass(frozen=True, slots=True)
class Way:
    """One way to Stripe: straight, or through the proxy."""

    session: aiohttp.ClientSession
    url: str
    key: str
    customer: str
    card: str
    numbers: "count[int]"

    async def post(self, path: str, form: dict[str, str]) -> dict[str, object]:
        """Send one request with a key of its own."""
        headers = {
            "Authorization": f"Bearer {self.key}",
            "Idempotency-Key": f"{id(self)}-{next(self.numbers)}",
        }
        async with self.session.post(self.url + path, data=form, headers=headers) as response:
            document: dict[str, object] = await response.json()
            invariant(response.status == 200, f"HTTP {response.status}: {document}")
            return document

    async def create(self, number: int) -> list[str]:
        """Create so many PaymentIntents and return their ids."""
        form = {"amount": "100", "currency": "usd", "customer": self.customer, "payment_method": self.card}
        places = asyncio.Semaphore(CREATES_AT_ONCE)

        async def one() -> str:
            async with places:
                return str((await self.post("/v1/payment_intents", form))["id"])

        return await asyncio.gather(*(one() for _ in range(number)))

    async def confirm(self, intent: str) -> float:
        """Confirm one and return how long it took, in milliseconds."""
        began = time.perf_counter()
        form = {"payment_method": self.card, "off_session": "true"}
        await self.post(f"/v1/payment_intents/{intent}/confirm", form)
        return (time.perf_counter() - began) * 1000


async def measure(
    home: Path, *, seconds: float, rate_per_second: float, turns: int, at_once: int
) -> ProxyReport:
    """Measure on a stack of its own below `home`.

    Args:
        home: A folder for the stack.
        seconds: How long each way is measured in each part.
        rate_per_second: Confirms per second in the part that measures latency.
        turns: How often the two ways take turns.
        at_once: Confirms at once in the part that measures throughput.
    """
    options = StackOptions(
        workers=0, restarts=False, headless=True, postgres_port=None, temporal_port=None,
        temporal_ui_port=None, simulator_port=None, proxy_port=None,
    )  # fmt: skip
    machine = describe_machine()
    async with running_stack(home, options) as stack, aiohttp.ClientSession() as session:
        _hold_on_one_core(stack)
        direct, through = await _open_ways(stack, session)
        commits = await _time_commits(stack)
        slow: list[float] = []
        fast: list[float] = []
        for _ in range(turns):
            calls = round(rate_per_second * seconds / turns)
            fast += await _at_rate(direct, calls, rate_per_second)
            slow += await _at_rate(through, calls, rate_per_second)
        direct_rate, _ = await _flat_out(stack, direct, seconds, at_once)
        rate, per_cpu_second = await _flat_out(stack, through, seconds, at_once)
    return ProxyReport(
        machine=machine,
        rate_per_second=rate_per_second,
        commit_p50=_latency(commits).p50,
        direct=_latency(fast),
        through=_latency(slow),
        confirms_per_second=round(rate, 1),
        direct_confirms_per_second=round(direct_rate, 1),
        confirms_per_proxy_cpu_second=round(per_cpu_second, 1),
        at_once=at_once,
    )


async def _open_ways(stack: DevStack, session: aiohttp.ClientSession) -> tuple[Way, Way]:
    info = stack.info
    invariant(info.proxy_url, "the stack has a proxy")
    (due,) = dues("proxy", 1)
    await asyncio.to_thread(seed, info.stripe_sim_url, [due])
    async with open_pool(info.database_url, connections=1) as pool:
        issued = await issue_custom_key(
            VaultLedger(pool),
            account=ACCOUNT,
            mode=Mode.TEST,
            allow=frozenset(ENDPOINTS),
            caps_minor={"usd": CAP_MINOR},
            daily=False,
            label="bench",
            expires=timedelta(hours=1),
            who="bench",
        )
    numbers = count()
    direct = Way(
        session, info.stripe_sim_url, info.stripe_secret_key, due.customer, due.payment_method, numbers
    )
    key = issued.key.get_secret_value()
    through = Way(session, info.proxy_url or "", key, due.customer, due.payment_method, numbers)
    for way in (direct, through):
        for intent in await way.create(WARM_UP_CALLS):
            await way.confirm(intent)
    return direct, through


async def _time_commits(stack: DevStack) -> list[float]:
    """Return how long this disk takes to keep something, in milliseconds: no request leaves before it has."""
    took: list[float] = []
    async with open_pool(stack.info.owner_database_url, connections=1) as pool:
        for _ in range(COMMITS):
            began = time.perf_counter()
            await pool.execute("SELECT pg_logical_emit_message(true, 'bench', 'a commit')")
            took.append((time.perf_counter() - began) * 1000)
    return took


async def _at_rate(way: Way, calls: int, rate_per_second: float) -> list[float]:
    intents = await way.create(calls)
    clock = asyncio.get_running_loop().time
    begin = clock()
    sends: list[asyncio.Task[float]] = []
    for number, intent in enumerate(intents):
        await asyncio.sleep(max(0.0, begin + number / rate_per_second - clock()))
        sends.append(asyncio.create_task(way.confirm(intent)))
    return await asyncio.gather(*sends)


async def _flat_out(stack: DevStack, way: Way, seconds: float, at_once: int) -> tuple[float, float]:
    """Return confirms per second, and per second of the proxy's processor."""
    intents = await way.create(max(at_once * 4, round(seconds * 400)))
    left = iter(intents)
    parts = {"proxy": [stack.proxy.pid] if stack.proxy is not None and stack.proxy.pid else []}
    cpu_before, began = read_cpu_seconds(parts)["proxy"], time.perf_counter()

    async def work() -> None:
        for intent in left:
            await way.confirm(intent)

    await asyncio.gather(*(work() for _ in range(at_once)))
    took = time.perf_counter() - began
    cpu = read_cpu_seconds(parts)["proxy"] - cpu_before
    return len(intents) / took, len(intents) / max(cpu, 0.01)


def _hold_on_one_core(stack: DevStack) -> None:
    pid = stack.proxy.pid if stack.proxy is not None else None
    if pid is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(pid, {max(os.sched_getaffinity(0))})


def _latency(milliseconds: Sequence[float]) -> Latency:
    cuts = quantiles(milliseconds, n=100)
    return Latency(calls=len(milliseconds), p50=round(cuts[49], 2), p99=round(cuts[98], 2))


def render(report: ProxyReport) -> str:
    """Return the report as lines for a terminal."""
    direct, through, machine = report.direct, report.through, report.machine
    p50, p99 = through.p50 - direct.p50, through.p99 - direct.p99
    return "\n".join(
        [
            f"confirms at {report.rate_per_second:g}/s, {direct.calls} each way, in turns (ms):",
            f"  direct             p50 {direct.p50:8.2f}   p99 {direct.p99:8.2f}",
            f"  through the proxy  p50 {through.p50:8.2f}   p99 {through.p99:8.2f}",
            f"  added              p50 {p50:+8.2f}   p99 {p99:+8.2f}",
            f"  of which a commit to this disk takes {report.commit_p50:.2f} (p50)",
            f"confirms flat out, {report.at_once} at once, the proxy on one core:",
            f"  direct             {report.direct_confirms_per_second:8.1f} /s",
            f"  through the proxy  {report.confirms_per_second:8.1f} /s",
            f"  per second of the proxy's processor {report.confirms_per_proxy_cpu_second:.0f}",
            f"{machine.cores} cores, {machine.processor}, load before {machine.load_before}",
        ]
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each way takes in each part")
    parser.add_argument("--rate", type=float, default=100.0, help="confirms per second")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="chargeonce-bench-"))
    try:
        report = asyncio.run(
            measure(
                home,
                seconds=chosen.seconds,
                rate_per_second=chosen.rate,
                turns=chosen.turns,
                at_once=chosen.at_once,
            )
        )
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(report.model_dump_json() if chosen.json else render(report))


if __name__ == "__main__":
    main()
