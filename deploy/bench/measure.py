"""Everything that a plan asks for, one after the other: two measurements at once would measure each other."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from deploy.bench.book import charged_once, read_summary
from deploy.bench.customers import dues
from deploy.bench.durable import UNLIMITED_PER_SECOND, Bench, running_bench
from deploy.bench.jobs import LoopResult
from deploy.bench.kill import KillReport, measure_kill
from deploy.bench.limits import LimitReport, measure_limits
from deploy.bench.machine import Machine, describe_machine
from deploy.bench.pairs import PairReport, measure_pair, run_process
from deploy.bench.per_call import PerCallJob
from deploy.bench.plan import BenchPlan

AT_ONCE = 64
WARM_UP_CHARGES = 50

Notice = Callable[[str], None]


class PerCallReport(BaseModel):
    """The same charges both ways. Rates are charges per second, the ratio is ours over the other's."""

    model_config = ConfigDict(frozen=True)

    charges: int
    per_call_rate: float
    durable_rate: float
    ratio: float


class BenchReport(BaseModel):
    """What was seen, and on what machine. What was not measured is empty."""

    model_config = ConfigDict(frozen=True)

    machine: Machine
    pairs: list[PairReport] = []
    limits: list[LimitReport] = []
    kill: KillReport | None = None
    per_call: PerCallReport | None = None


async def measure(home: Path, plan: BenchPlan, notice: Notice) -> BenchReport:
    """Measure what `plan` asks for, below `home`.

    Raises:
        BookDisagrees: The simulator's book does not show that everybody was charged once.
    """
    machine = describe_machine()
    pairs = []
    for pair in plan.pairs:
        notice(f"durable runs against the unsafe loop, {pair.call_style} calls")
        pairs.append(await measure_pair(home / f"pair-{pair.call_style}", pair))
    limits, kill, per_call = [], None, None
    if plan.limit_rates_per_second:
        notice("rate limits")
        limits = await measure_limits(
            home,
            plan.limit_rates_per_second,
            seconds=plan.limit_seconds,
            warm_up_seconds=plan.limit_warm_up_seconds,
        )
    if plan.kill_charges:
        notice("a worker is killed")
        kill = await measure_kill(home, plan.kill_charges)
    if plan.per_call_charges:
        notice("an activity per Stripe call")
        per_call = await _measure_per_call(home / "per-call", plan.per_call_charges)
    return BenchReport(machine=machine, pairs=pairs, limits=limits, kill=kill, per_call=per_call)


async def _measure_per_call(home: Path, charges: int) -> PerCallReport:
    settings = {"rate_per_second": str(UNLIMITED_PER_SECOND), "requests_at_once": str(AT_ONCE)}
    async with running_bench(home, settings) as bench:
        await bench.run("w", WARM_UP_CHARGES)
        await _run_per_call(bench, "pw", WARM_UP_CHARGES)
        other = await _run_per_call(bench, "p", charges)
        ours = await bench.run("d", charges)
    per_call_rate, durable_rate = charges / other.seconds, charges / ours.whole_seconds
    return PerCallReport(
        charges=charges,
        per_call_rate=round(per_call_rate, 1),
        durable_rate=round(durable_rate, 1),
        ratio=round(durable_rate / per_call_rate, 2),
    )


async def _run_per_call(bench: Bench, label: str, charges: int) -> LoopResult:
    await bench.seed(dues(label, charges))
    before = await asyncio.to_thread(read_summary, bench.url)
    job = PerCallJob(
        url=bench.url,
        secret_key=bench.stack.info.stripe_secret_key,
        label=label,
        charges=charges,
        at_once=AT_ONCE,
    )
    result = LoopResult.model_validate_json(await run_process("deploy.bench.per_call", job))
    await asyncio.to_thread(charged_once, bench.url, before, charges)
    return result
