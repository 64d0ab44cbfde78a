"""An embedded stack with its proxy, small and quick, and a run in it."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from activities.ledger.database import open_pool
from deploy.devstack import DevStack, StackOptions, running_stack
from deploy.stack_info import inherited_environment
from deploy.stripe_sim.client import seed_file

PERIOD, RUN = "2031-03", "billing-run/acct_sim/2031-03"
DEADLINE_SECONDS = 90.0


@asynccontextmanager
async def small_stack(
    home: Path, monkeypatch: pytest.MonkeyPatch, *, rate_per_second: int
) -> AsyncIterator[DevStack]:
    """Yield a stack with one worker, with this process attached to it."""
    options = StackOptions(
        settings={"timing": "tests", "rate_per_second": str(rate_per_second)}, durable=False, headless=True,
        postgres_port=None, temporal_port=None, simulator_port=None, proxy_port=None,
        simulator_arguments=("--latency-ms", "30"),
    )  # fmt: skip
    async with running_stack(home, options) as stack:
        for name, value in stack.info.environment().items():
            monkeypatch.setenv(name, value)
        yield stack


async def start_run(stack: DevStack, *, lines: int) -> None:
    """Start a run over so many lines of 1.50 USD, 2.50 USD and so on, whom the simulator knows."""
    source = stack.home / "charges.csv"
    rows = (f"cus_c{number},usd,{number}.50,pm_card_visa_c{number}\n" for number in range(1, lines + 1))
    source.write_text("customer,currency,amount,payment_method\n" + "".join(rows))
    await asyncio.to_thread(seed_file, stack.info.stripe_sim_url, source, None)
    run = await command(stack, "run", "start", "--period", PERIOD, "--source", str(source), "--yes")
    assert run.returncode == 0, run.stderr


async def command(stack: DevStack, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Type a command in a shell that is attached to the stack."""
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "deploy.cli", *words],
        capture_output=True,
        text=True,
        check=False,
        env=inherited_environment() | stack.info.environment() | variables,
        timeout=DEADLINE_SECONDS,
    )


async def until(stack: DevStack, question: str) -> None:
    """Return once the ledger answers yes."""
    async with asyncio.timeout(DEADLINE_SECONDS), open_pool(stack.info.database_url, connections=1) as pool:
        while not await pool.fetchval(question):  # noqa: ASYNC110 - nobody signals
            await asyncio.sleep(0.05)


async def books_of(stack: DevStack) -> dict[str, Any]:
    """Return the three books as the run's close found them."""
    async with open_pool(stack.info.database_url, connections=1) as pool:
        report = await pool.fetchval("SELECT report FROM billing_runs WHERE run_id = $1", RUN)
    books: dict[str, Any] = report["books"]
    return books
