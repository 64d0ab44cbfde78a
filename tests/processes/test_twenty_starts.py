"""One period, twenty who start it at once: by command, by schedule, by its backfills and from Python."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import (
    Client,
    ScheduleActionExecutionStartWorkflow,
    ScheduleBackfill,
    ScheduleHandle,
    ScheduleOverlapPolicy,
)

from activities.ledger.database import open_pool
from activities.sources.opening import open_source
from deploy.devstack import DevStack, StackOptions, running_stack
from tests.conftest import FAST_CONTINUE_AS_NEW
from tests.schedules.launch_pad import fired_once, reported
from worker.environment import load_settings
from worker.failures import CommandFailed
from worker.schedules.schedule_file import parse_schedules
from worker.schedules.sync import sync
from worker.schedules.temporal_schedules import schedule_id_of
from worker.source_check import check_source
from worker.starting import StartOptions, start_run
from worker.temporal_client import connect_temporal
from workflows.domain.calendar import Firing
from workflows.launch_contracts import LaunchOutcome

pytestmark = pytest.mark.timeout(300)

CHECKOUT = Path(__file__).resolve().parents[2]
CUSTOMERS = 12
BY_COMMAND, BY_SCHEDULE, BY_PYTHON = 5, 3, 12
DEADLINE_SECONDS = 120.0


@dataclass(frozen=True)
class Start:
    """What one of the twenty was told: the run it started, or the one that won."""

    by: str
    won: bool
    run: str


@pytest.fixture
async def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DevStack]:
    """A whole stack, which this process and its children work with."""
    options = StackOptions(
        durable=False, headless=True, restarts=False, postgres_port=None, temporal_port=None,
        temporal_ui_port=None, simulator_port=None, proxy_port=None, settings={"timing": "tests"},
        # Or Temporal drops the second of two backfills of a slot within a second.
        dynamic_config=FAST_CONTINUE_AS_NEW,
    )  # fmt: skip
    async with running_stack(tmp_path / "home", options) as running:
        for name, value in running.info.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("CHARGEONCE_HOME", str(tmp_path / "home"))
        yield running


async def test_twenty_starts_of_one_period_are_one_run(stack: DevStack, tmp_path: Path) -> None:
    """Every customer is charged once, and each of the nineteen others is told which run has the period."""
    client = await connect_temporal()
    handle, firing = await schedule(client, tmp_path)
    label = str(firing.period)
    source = write_source(tmp_path / f"{label}.csv")
    await type_command("sim", "seed", str(source))

    rows = await asyncio.to_thread(source.read_bytes)
    commands = [asyncio.create_task(by_command(label, rows)) for _ in range(BY_COMMAND)]
    await somebody_is_about_to_start(tmp_path / "home")
    starts = await asyncio.gather(
        *commands,
        by_schedule(client, handle, firing),
        *(by_python(client, firing, source) for _ in range(BY_PYTHON)),
    )
    told = [start for group in starts for start in group]
    assert len(told) == BY_COMMAND + BY_SCHEDULE + BY_PYTHON
    run = f"billing-run/acct_sim/{label}"
    assert {start.run for start in told} == {run}
    assert sum(start.won for start in told) == 1, told

    shown = await closed(run)
    assert (shown["lines"], shown["succeeded"]) == (CUSTOMERS, CUSTOMERS)
    assert [one["run"] for one in (await type_command("run", "list"))["runs"]] == [run]
    book = await type_command("sim", "book", "--identity", "chargeonce_charge")
    assert (book["succeeded"], book["double_charges"]) == (CUSTOMERS, [])


async def schedule(client: Client, folder: Path) -> tuple[ScheduleHandle, Firing]:
    """Make a monthly schedule that fired some days ago, and return what it would have billed then."""
    some_days_ago = datetime.now(UTC) - timedelta(days=5)
    keys = {
        "name": "monthly", "account": "acct_sim", "zone": "UTC", "every": "month", "since": "2020-01",
        "anchor": min(some_days_ago.day, 28), "source": "{period}.csv", "approve": "any",
    }  # fmt: skip
    [entry] = parse_schedules({"schedule": [keys]}, folder, "schedules.toml")
    await sync(client, [entry], load_settings())
    handle = client.get_schedule_handle(schedule_id_of("monthly"))
    return handle, entry.calendar().fired_at(datetime.now(UTC))


def write_source(path: Path) -> Path:
    """Write whom the period bills."""
    rows = (f"cus_w{number},usd,{number}.00,pm_card_visa_w{number}\n" for number in range(1, CUSTOMERS + 1))
    path.write_text("customer,currency,amount,payment_method\n" + "".join(rows))
    return path


async def by_command(label: str, rows: bytes) -> list[Start]:
    """Start the run as somebody at a shell does."""
    words = ("run", "start", "--period", label, "--source", "-", "--yes")
    exit_code, document = await typed(*words, stdin=rows)
    assert exit_code in {0, 4}, document
    if exit_code == 4:
        assert document["refused"], document
    return [Start("command", exit_code == 0, document["run"])]


async def by_python(client: Client, firing: Firing, source: Path) -> list[Start]:
    """Start the run as another program does."""
    settings = load_settings()
    async with open_pool(settings.database_url.get_secret_value(), connections=1) as pool:
        checked = await check_source(open_source(str(source)))
        options = StartOptions(period=firing.period, approve_any=True)
        try:
            handle = await start_run(client, pool, settings, checked, options)
        except CommandFailed as refusal:
            named = refusal.details["run"]
            return [Start("python", won=False, run=named if named in str(refusal) else "nobody")]
    return [Start("python", won=True, run=handle.id)]


async def by_schedule(client: Client, handle: ScheduleHandle, firing: Firing) -> list[Start]:
    """Trigger the schedule and have it fire its slot, twice, each once the one before has fired."""
    backfill = ScheduleBackfill(
        start_at=firing.at, end_at=firing.at + timedelta(seconds=1), overlap=ScheduleOverlapPolicy.BUFFER_ALL
    )
    await handle.trigger(overlap=ScheduleOverlapPolicy.BUFFER_ALL)
    for count in range(1, BY_SCHEDULE):
        await fired_once(handle, count, deadline_seconds=DEADLINE_SECONDS)
        await handle.backfill(backfill)
    fired = await fired_once(handle, BY_SCHEDULE, deadline_seconds=DEADLINE_SECONDS)
    return [await launched(client, one) for one in fired]


async def launched(client: Client, fired: ScheduleActionExecutionStartWorkflow) -> Start:
    """Return what a launcher told of its start."""
    report = await reported(client, fired)
    assert report.run_id is not None
    if report.outcome is LaunchOutcome.DUPLICATE:
        assert report.reason is not None
        assert report.run_id in report.reason
    return Start("schedule", report.outcome is LaunchOutcome.STARTED, report.run_id)


async def somebody_is_about_to_start(home: Path) -> None:
    """Wait until a command has read its source: it does little more before it starts."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not any(path.parent.name == "sources" for path in home.rglob("*")):  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.01)


async def closed(run: str) -> dict[str, Any]:
    """Show the run until it has closed."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (shown := await type_command("run", "show", run))["phase"] != "closed":  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    return shown


async def type_command(*words: str) -> dict[str, Any]:
    """Run a command that succeeds, and return what it printed."""
    exit_code, document = await typed(*words)
    assert exit_code == 0, document
    return document


async def typed(*words: str, stdin: bytes | None = None) -> tuple[int, dict[str, Any]]:
    """Run `chargeonce ... --json` in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy.cli", *words, "--json", cwd=CHECKOUT, env=dict(os.environ),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    stdout, stderr = await process.communicate(stdin)
    assert stdout, stderr.decode()
    assert process.returncode is not None
    return process.returncode, json.loads(stdout)
