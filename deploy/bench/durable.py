"""A real run on a real stack, timed: started as any other, waited for until it is closed."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import asyncpg
from temporalio.client import Client

from activities.sources.opening import open_source
from deploy.bench.book import charged_once, read_summary
from deploy.bench.cpu import parts_of, per_charge_ms, read_cpu_seconds
from deploy.bench.customers import Due, dues, seed, write_source
from deploy.devstack import DevStack, StackOptions, running_stack
from worker.temporal_client import RunHandle, connect_temporal
from workflows.billing_run import BillingRun
from workflows.contracts import RunInput, RunRequest, Timing
from workflows.domain.errors import InvariantViolation, invariant

ACCOUNT = "acct_sim"
TASK_QUEUE = "chargeonce"
UNLIMITED_PER_SECOND = 10_000
_PHASE_SECONDS = """
SELECT extract(epoch FROM closed_at - planned_at)::float8 FROM billing_runs WHERE run_id = $1
"""


@dataclass(frozen=True, slots=True)
class DurableRun:
    """One run, as its stack and the book saw it."""

    charges: int
    whole_seconds: float
    charging_seconds: float
    cpu_ms_per_charge: dict[str, float]


@dataclass(slots=True)
class Bench:
    """A running stack, a client, and periods that no run has used yet."""

    stack: DevStack
    client: Client
    _periods: "count[int]" = field(default_factory=count)

    @property
    def url(self) -> str:
        """Where the simulator listens."""
        return self.stack.info.stripe_sim_url

    async def start(self, label: str, charges: int) -> RunHandle:
        """Seed fresh customers, and start a run for them in a period of its own."""
        everybody = dues(label, charges)
        await self.seed(everybody)
        source = self.stack.home / f"{label}.csv"
        write_source(source, everybody)
        number = next(self._periods)
        period = f"{2031 + number // 12}-{number % 12 + 1:02d}"
        run_id = f"billing-run/{ACCOUNT}/{period}"
        request = RunRequest(
            account=ACCOUNT, period=period, run_id=run_id, source=str(source),
            source_sha256=await open_source(str(source)).fingerprint(), started_by="bench",
            approve_any=True, timing=Timing.DEMO,
        )  # fmt: skip
        return await self.client.start_workflow(
            BillingRun.run, RunInput(request=request), id=run_id, task_queue=TASK_QUEUE
        )

    async def seed(self, everybody: list[Due]) -> None:
        """Make customers known to the simulator."""
        await asyncio.to_thread(seed, self.url, everybody)

    async def run(self, label: str, charges: int) -> DurableRun:
        """Start a run, wait until it is closed, and check it against the book.

        Raises:
            BookDisagrees: Not everybody was charged, or someone twice.
        """
        summary = await asyncio.to_thread(read_summary, self.url)
        parts = parts_of(self.stack)
        cpu_before = read_cpu_seconds(parts)
        handle = await self.start(label, charges)
        report = await handle.result()
        execution = await handle.describe()
        cpu = per_charge_ms(cpu_before, read_cpu_seconds(parts), charges)
        if execution.close_time is None:
            raise InvariantViolation("a workflow with a result has ended")
        invariant(report.phase == "closed", f"{report.run_id} ended {report.phase}: {report.reason}")
        await asyncio.to_thread(charged_once, self.url, summary, charges)
        return DurableRun(
            charges=charges,
            whole_seconds=(execution.close_time - execution.start_time).total_seconds(),
            charging_seconds=await self._charging_seconds(report.run_id),
            cpu_ms_per_charge=cpu,
        )

    async def _charging_seconds(self, run_id: str) -> float:
        connection = await asyncpg.connect(self.stack.info.owner_database_url)
        try:
            return float(await connection.fetchval(_PHASE_SECONDS, run_id))
        finally:
            await connection.close()


@asynccontextmanager
async def running_bench(
    home: Path, settings: Mapping[str, str], *, workers: int = 1, restarts: bool = False, durable: bool = True
) -> AsyncIterator[Bench]:
    """Yield a bench on a stack below `home`; this process is pointed at it and finds its way back after."""
    options = StackOptions(
        workers=workers, settings={"timing": Timing.DEMO, **settings}, restarts=restarts, headless=True,
        durable=durable, proxy=False, postgres_port=None, temporal_port=None, temporal_ui_port=None,
        simulator_port=None,
    )  # fmt: skip
    environment = dict(os.environ)
    async with running_stack(home, options) as stack:
        os.environ.update(stack.info.environment())
        try:
            yield Bench(stack, await connect_temporal())
        finally:
            os.environ.clear()
            os.environ.update(environment)
