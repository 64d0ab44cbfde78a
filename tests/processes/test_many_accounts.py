"""Twelve accounts in one worker, one of them refused and one slow: the other ten do not notice."""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter

from activities.sources.opening import open_source
from deploy.postgres import Database
from deploy.stripe_sim.testing import RunningSim, running_sim
from deploy.temporal_server import TemporalServer
from workflows.billing_run import BillingRun
from workflows.contracts import RunInput, RunReport, RunRequest, Timing
from workflows.domain.answer import METADATA_CHARGE, METADATA_PERIOD

ROOT = Path(__file__).resolve().parents[2]
GOOD = [f"acct_good_{number}" for number in range(10)]
REFUSED, SLOW = "acct_refused", "acct_slow"
LINES = 50
SLICE_LINES = 25
SLOW_SECONDS = 4.0
ALONE, IN_COMPANY = "2031-03", "2031-04"
DEADLINE_SECONDS = 90
NOTICED_FACTOR = 2.0  # generous: the machine has other things to do as well
NOTICED_SECONDS = 2.0


@dataclass
class Town:
    """One worker process for all accounts, and what it works with."""

    sim: RunningSim
    client: Client
    task_queue: str
    folder: Path

    async def bill(
        self, accounts: Sequence[str], period: str
    ) -> dict[str, WorkflowHandle[BillingRun, RunReport]]:
        """Start a run for each account and return their handles."""
        return {account: await self._start(account, period) for account in accounts}

    async def _start(self, account: str, period: str) -> WorkflowHandle[BillingRun, RunReport]:
        source = self.folder / f"{account}-{period}.csv"
        rows = ["customer,currency,amount_minor,payment_method"]
        for number in range(LINES):
            customer, card = f"cus_{account}_{number}", f"pm_card_visa_{account}_{number}"
            self.sim.seed(customer, card, account=account)
            rows.append(f"{customer},usd,{1_000 + number},{card}")
        source.write_text("\n".join(rows) + "\n")
        request = RunRequest(
            account=account,
            period=period,
            run_id=f"billing-run/{account}/{period}/{self.task_queue}",
            source=str(source),
            source_sha256=await open_source(str(source)).fingerprint(),
            started_by="tests",
            approve_any=True,
            slice_size=SLICE_LINES,
            timing=Timing.TESTS,
        )
        return await self.client.start_workflow(
            BillingRun.run, RunInput(request=request), id=request.run_id, task_queue=self.task_queue
        )

    def paid(self, account: str, period: str) -> Counter[str]:
        """Return how often each charge was paid, by the simulator's own book."""
        return Counter(
            movement.metadata[METADATA_CHARGE]
            for movement in self.sim.movements
            if movement.account == account and movement.metadata[METADATA_PERIOD] == period
        )


@asynccontextmanager
async def worker_for(
    accounts: Sequence[str], *, town: Town, environment: dict[str, str]
) -> AsyncIterator[None]:
    """Run one worker process for these accounts."""
    variables = {
        **os.environ,
        **environment,
        "STRIPE_SECRET_KEY": "sk_test_synthetic",
        "CHARGEONCE_STRIPE_API_BASE": town.sim.url,
        "CHARGEONCE_CONNECTED_ACCOUNTS": ",".join(accounts),
        "CHARGEONCE_TASK_QUEUE": town.task_queue,
        "CHARGEONCE_TIMING": "tests",
        "CHARGEONCE_READY_FILE": str(town.folder / "ready"),
    }
    with (town.folder / "worker.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "worker", cwd=ROOT, env=variables, stdout=log, stderr=log
        )
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not (town.folder / "ready").exists():  # noqa: ASYNC110 - nobody signals
                await asyncio.sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 15)
        except TimeoutError:
            process.kill()
            await process.wait()


@pytest.fixture
async def town(
    database: Database, temporal_server: TemporalServer, task_queue: str, tmp_path: Path
) -> AsyncIterator[Town]:
    """A worker for twelve accounts; one of them Stripe refuses, one it answers slowly."""
    client = await Client.connect(temporal_server.address, data_converter=pydantic_data_converter)
    async with running_sim() as sim:
        town = Town(sim, client, task_queue, tmp_path)
        environment = {
            "CHARGEONCE_DATABASE_URL": database.app_url,
            "TEMPORAL_ADDRESS": temporal_server.address,
            "TEMPORAL_NAMESPACE": "default",
        }
        async with worker_for([*GOOD, REFUSED, SLOW], town=town, environment=environment):
            yield town


async def finish(handles: dict[str, WorkflowHandle[BillingRun, RunReport]]) -> list[RunReport]:
    """Wait for the ends of runs."""
    return await asyncio.wait_for(
        asyncio.gather(*(handle.result() for handle in handles.values())), DEADLINE_SECONDS
    )


async def test_one_stuck_account_does_not_hold_up_the_rest(town: Town) -> None:
    """Ten accounts are billed as fast beside one that is refused and one that is slow as they are alone."""
    began = time.monotonic()
    await finish(await town.bill(GOOD, ALONE))
    alone_seconds = time.monotonic() - began
    town.sim.set_faults(
        {
            "name": "refused",
            "match": {"method": "*", "account": REFUSED},
            "effect": {"kind": "error", "status": 401},
        },
        {
            "name": "slow",
            "match": {"method": "*", "account": SLOW},
            "effect": {"kind": "delay", "seconds": SLOW_SECONDS},
        },
    )
    bad = await town.bill([REFUSED, SLOW], IN_COMPANY)
    began = time.monotonic()
    reports = await finish(await town.bill(GOOD, IN_COMPANY))
    seconds = time.monotonic() - began
    print(f"ten accounts: {alone_seconds:.1f} s alone, {seconds:.1f} s beside a refused and a slow one")
    assert [(report.phase, report.counts["succeeded"]) for report in reports] == [("closed", LINES)] * len(
        GOOD
    )
    for account in GOOD:
        for period in (ALONE, IN_COMPANY):
            assert sorted(town.paid(account, period).values()) == [1] * LINES
    assert seconds < NOTICED_FACTOR * alone_seconds + NOTICED_SECONDS
    [slow_report] = await finish({SLOW: bad[SLOW]})
    assert slow_report.counts["succeeded"] == LINES
    assert not town.paid(REFUSED, IN_COMPANY)
    progress = await bad[REFUSED].query(BillingRun.progress)
    assert "credentials" in (progress.halted or "")
