"""Durable runs against the unsafe loop: A B A B on one stack, fresh customers and periods each time."""

import asyncio
import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from deploy.bench.book import charged_once, read_summary
from deploy.bench.customers import dues
from deploy.bench.durable import UNLIMITED_PER_SECOND, Bench, DurableRun, running_bench
from deploy.bench.jobs import CallStyle, LoopJob, LoopResult
from deploy.bench.measured import Spread
from workflows.domain.errors import invariant

LOOP_WARM_UP = 200


class PairReport(BaseModel):
    """One call style. Rates are charges per second; ratios are durable rate over the loop's beside it."""

    model_config = ConfigDict(frozen=True)

    call_style: CallStyle
    repetitions: int
    charges: int
    at_once: int
    loop_rate: Spread
    durable_charging_rate: Spread
    durable_whole_rate: Spread
    ratio_charging: Spread
    ratio_whole: Spread
    loop_cpu_ms_per_charge: Spread
    durable_cpu_ms_per_charge: dict[str, Spread]


class PairPlan(BaseModel):
    """How much to measure. Charges are per repetition; the warm-up says how many fit into `seconds`."""

    model_config = ConfigDict(frozen=True)

    call_style: CallStyle
    repetitions: int
    at_once: int
    warm_up_charges: int
    seconds: float
    charges_min: int
    charges_max: int


async def measure_pair(home: Path, plan: PairPlan) -> PairReport:
    """Warm both up, then alternate them. Raises BookDisagrees where not everybody was charged once."""
    settings = {
        "rate_per_second": str(UNLIMITED_PER_SECOND),
        "requests_at_once": str(plan.at_once),
        "call_style": plan.call_style,
    }
    async with running_bench(home, settings) as bench:
        warm = await bench.run("w", plan.warm_up_charges)
        rate = plan.warm_up_charges / warm.charging_seconds
        charges = min(max(round(rate * plan.seconds), plan.charges_min), plan.charges_max)
        loops, runs = [], []
        for repetition in range(plan.repetitions):
            loops.append(await _run_loop(bench, plan, f"l{repetition}", charges))
            runs.append(await bench.run(f"d{repetition}", charges))
    return _report(plan, charges, loops, runs)


async def _run_loop(bench: Bench, plan: PairPlan, label: str, charges: int) -> LoopResult:
    warm_up = min(LOOP_WARM_UP, charges)
    await bench.seed([*dues(f"{label}w", warm_up), *dues(label, charges)])
    before = await asyncio.to_thread(read_summary, bench.url)
    job = LoopJob(
        url=bench.url,
        secret_key=bench.stack.info.stripe_secret_key,
        call_style=plan.call_style,
        label=label,
        charges=charges,
        warm_up_charges=warm_up,
        at_once=plan.at_once,
    )
    answer = await run_process("deploy.bench.unsafe_loop", job)
    result = LoopResult.model_validate_json(answer)
    await asyncio.to_thread(charged_once, bench.url, before, charges + warm_up)
    return result


async def run_process(module: str, job: BaseModel) -> bytes:
    """Run a module of ours as a process of its own: the job on its standard input, the answer returned."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        answer, _ = await process.communicate(job.model_dump_json().encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    invariant(process.returncode == 0, f"{module} ended with {process.returncode}")
    return answer


def _report(plan: PairPlan, charges: int, loops: list[LoopResult], runs: list[DurableRun]) -> PairReport:
    loop_rates = [charges / loop.seconds for loop in loops]
    charging = [charges / run.charging_seconds for run in runs]
    whole = [charges / run.whole_seconds for run in runs]
    return PairReport(
        call_style=plan.call_style,
        repetitions=plan.repetitions,
        charges=charges,
        at_once=plan.at_once,
        loop_rate=Spread.of(loop_rates, 1),
        durable_charging_rate=Spread.of(charging, 1),
        durable_whole_rate=Spread.of(whole, 1),
        ratio_charging=_ratios(charging, loop_rates),
        ratio_whole=_ratios(whole, loop_rates),
        loop_cpu_ms_per_charge=Spread.of([1_000 * loop.cpu_seconds / charges for loop in loops]),
        durable_cpu_ms_per_charge={
            part: Spread.of([run.cpu_ms_per_charge[part] for run in runs])
            for part in runs[0].cpu_ms_per_charge
        },
    )


def _ratios(ours: list[float], theirs: list[float]) -> Spread:
    return Spread.of([mine / yours for mine, yours in zip(ours, theirs, strict=True)], 3)
