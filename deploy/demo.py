"""`chargeonce demo`: a real file is billed by real parts, a worker is killed halfway, and everyone pays once.

The run is started and waited for by the same code as `chargeonce run start --wait`; only the killing is
added. What is claimed at the end comes from the simulator's book, not from our ledger.
"""

import asyncio
import csv
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import typer
from temporalio.client import Client

from activities.ledger.database import Pool, open_pool
from activities.ledger.runs import RunLedger
from activities.sources.opening import open_source
from deploy.attach import notice, use_stack
from deploy.demo_proof import DemoProof, Kill, prove, render_story
from deploy.devstack import DevStack, StackOptions, running_stack
from deploy.stripe_sim.client import seed_file
from worker.console_output import Output
from worker.environment import load_settings
from worker.failures import EXIT_DRIFT, EXIT_FAILED
from worker.json_over_http import ask_json
from worker.progress_display import progress_display
from worker.run_view import view_run
from worker.source_check import check_source
from worker.starting import StartOptions, start_run
from worker.temporal_client import RunHandle, connect_temporal
from worker.waiting import Waited, wait_for_run
from workflows.domain.errors import ChargeonceError, invariant
from workflows.domain.periods import Period

PERIOD = Period.month(2031, 3)
SAMPLE = "charges-2031-03.csv"
WORKERS = 2
SETTINGS = {"timing": "demo", "rate_per_second": "30"}
SLICE_LINES = 40  # small slices, so that both workers have some and a killed one loses little
# Now and then the wire fails too: before Stripe has done anything, or after.
FAULTS = {
    "faults": [
        {"name": "lost-request", "place": "before", "match": {"nth": 41}, "effect": {"kind": "drop"}},
        {"name": "lost-answer", "place": "after", "match": {"nth": 59}, "effect": {"kind": "drop"}},
    ]
}
LATENCY_MS = 150  # as long as Stripe takes: otherwise nothing is on the wire when the worker dies
KILL_AT_SHARE = 0.4
REQUESTS_ON_WIRE_MIN = 3
_WATCH_SECONDS = 0.05
_JOURNAL_TAIL = 200


async def run_demo(output: Output, *, customers_max: int | None, keep: bool, proxy: bool = True) -> None:
    """Play the demo in a home of its own, with or without the spend-cap proxy, and print what it proved.

    Raises:
        typer.Exit: 3 or 1: someone was charged twice, forgotten, or nothing was proved.
    """
    began = time.monotonic()
    home = Path(tempfile.mkdtemp(prefix="chargeonce-demo-"))
    try:
        notice(f"starting PostgreSQL, Temporal, simulated Stripe and {WORKERS} workers in {home}")
        options = StackOptions(
            workers=WORKERS, proxy=proxy, settings=SETTINGS, restarts=False, headless=True, on_notice=notice,
            postgres_port=None, temporal_port=None, temporal_ui_port=None, simulator_port=None,
            proxy_port=None,
        )  # fmt: skip
        async with running_stack(home, options) as stack:
            proof = await _play(stack, home, customers_max=customers_max)
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)
    document = {
        **proof.document(),
        "seconds": round(time.monotonic() - began, 1),
        "home": str(home) if keep else None,
    }
    output.result(document, lambda: render_story(document))
    if not proof.holds:
        raise typer.Exit(EXIT_FAILED if proof.verify == "clean" else EXIT_DRIFT)


async def _play(stack: DevStack, home: Path, *, customers_max: int | None) -> DemoProof:
    use_stack(stack.info)
    source = _write_source(home / SAMPLE, customers_max)
    simulator = stack.info.stripe_sim_url
    await asyncio.to_thread(seed_file, simulator, source, None)
    await asyncio.to_thread(ask_json, simulator, "PATCH", "/_sim/settings", {"latency_ms": LATENCY_MS})
    await asyncio.to_thread(ask_json, simulator, "PUT", "/_sim/faults", FAULTS)
    settings = load_settings()
    client = await connect_temporal()
    async with open_pool(settings.database_url.get_secret_value(), connections=4) as pool:
        checked = await check_source(open_source(str(source)))
        invariant(not checked.problems, "the sample can be billed")
        options = StartOptions(period=PERIOD, slice_lines=SLICE_LINES, approve_any=True)
        handle = await start_run(client, pool, settings, checked, options)
        notice(f"started {handle.id}: {checked.lines} lines")
        async with _kill_halfway(stack, client, pool, handle) as kills:
            waited = await _wait(pool, handle)
        if not kills:
            raise ChargeonceError("the run ended before a worker could be killed: nothing is shown by it")
        return await prove(
            pool, settings, simulator, waited=waited, kills=kills, customers=_count_customers(source)
        )


async def _wait(pool: Pool, handle: RunHandle) -> Waited:
    with progress_display() as display:
        return await wait_for_run(RunLedger(pool), handle, display=display, notice=notice)


@asynccontextmanager
async def _kill_halfway(
    stack: DevStack, client: Client, pool: Pool, handle: RunHandle
) -> AsyncIterator[list[Kill]]:
    """Yield the list of kills, which a watcher fills while the run goes on."""
    kills: list[Kill] = []
    watcher = asyncio.create_task(_watch(stack, client, RunLedger(pool), handle.id, kills))
    try:
        yield kills
        if kills:
            await watcher  # the killed worker is to be back before anything else happens
    finally:
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)


async def _watch(stack: DevStack, client: Client, ledger: RunLedger, run_id: str, kills: list[Kill]) -> None:
    while True:
        view = await view_run(ledger, run_id)
        if view.lines and view.settled >= KILL_AT_SHARE * view.lines:
            on_wire = await asyncio.to_thread(_requests_on_wire, stack.info.stripe_sim_url)
            victim = await _busy_worker(stack, client, run_id)
            if victim is not None and on_wire >= REQUESTS_ON_WIRE_MIN:
                break
        await asyncio.sleep(_WATCH_SECONDS)
    pid = stack.kill_worker(victim)
    kills.append(Kill(pid=pid, settled=view.settled, lines=view.lines, requests_on_wire=on_wire))
    notice(f"kill -9 {pid}: a worker died with {view.settled} of {view.lines} lines settled")
    notice(f"started it again as {await stack.restart_worker(victim)}")


async def _busy_worker(stack: DevStack, client: Client, run_id: str) -> int | None:
    """Return the index of the worker with the most slices under way; Temporal knows it as pid@host."""
    description = await client.get_workflow_handle(run_id).describe()
    pids = [
        activity.last_worker_identity.partition("@")[0]
        for activity in description.raw_description.pending_activities
    ]
    busy = [pids.count(str(worker.pid)) for worker in stack.workers]
    return busy.index(max(busy)) if any(busy) else None


def _requests_on_wire(simulator: str) -> int:
    total = ask_json(simulator, "GET", "/_sim/journal?limit=0")["total"]
    tail = ask_json(simulator, "GET", f"/_sim/journal?since={max(0, total - _JOURNAL_TAIL)}")
    return sum(_is_open_post(request) for request in tail["requests"])


def _is_open_post(request: dict[str, Any]) -> bool:
    return request["method"] == "POST" and request["answered_at"] is None


def _write_source(path: Path, customers_max: int | None) -> Path:
    """Copy the shipped sample to where the workers read it, cut off after so many customers."""
    rows = files("deploy.samples").joinpath(SAMPLE).read_text(encoding="utf-8").splitlines(keepends=True)
    kept, customers = rows[:1], set[str]()
    for row in rows[1:]:
        customers.add(next(csv.reader([row]))[0])
        if customers_max is not None and len(customers) > customers_max:
            break
        kept.append(row)
    path.write_text("".join(kept), encoding="utf-8")
    return path


def _count_customers(source: Path) -> int:
    with source.open(encoding="utf-8", newline="") as file:
        return len({row["customer"] for row in csv.DictReader(file)})
