"""Record histories/*.json anew: `python -m tests.workflows.record_histories`.

Do this only when a change of the workflow's commands is meant and no run of the old kind is alive anywhere:
a recorded history that no longer replays is a run that would be stuck.
"""

import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from temporalio.client import WorkflowHistory

from deploy.temporal_server import TemporalServer
from tests.conftest import FAST_CONTINUE_AS_NEW
from tests.workflows.conftest import RESTLESS
from tests.workflows.fakes import FakeLedger
from tests.workflows.stage import Stage, connect, finish, open_stage, progress_once, tick
from workflows.contracts import Lock, Timing

FOLDER = Path(__file__).parent / "histories"
ROOT = Path(__file__).resolve().parents[2]
DAY = 86_400.0

Recording = Callable[[str], Awaitable[list[WorkflowHistory]]]


async def record_happy(address: str) -> list[WorkflowHistory]:
    """Three slices, nothing in the way."""
    async with open_stage(address, "recorded-happy", FakeLedger(slices=3)) as stage:
        handle = await stage.start()
        await finish(handle)
        return await stage.histories(handle)


async def record_halted(address: str) -> list[WorkflowHistory]:
    """A slice halts and goes on after a tick."""
    ledger = FakeLedger(halts={0: ["401 invalid_api_key"]})
    async with open_stage(address, "recorded-halted", ledger) as stage:
        handle = await stage.start(timing=Timing.PRODUCTION)
        await progress_once(handle, lambda progress: progress.halted is not None)
        await tick(handle)
        await finish(handle)
        return await stage.histories(handle)


async def record_settled_after_tick(address: str) -> list[WorkflowHistory]:
    """What is open becomes due because the clock was moved, and a tick says so."""
    ledger = FakeLedger(due_seconds=[DAY, 3 * DAY])
    async with open_stage(address, "recorded-settled-after-tick", ledger) as stage:
        handle = await stage.start(timing=Timing.PRODUCTION)
        for _ in range(2):
            await progress_once(handle, lambda progress: progress.waiting_until_epoch_seconds is not None)
            ledger.move_clock(2 * DAY)
            await tick(handle)
        await finish(handle)
        return await stage.histories(handle)


async def record_continued(address: str) -> list[WorkflowHistory]:
    """Slices, a halted one among them, and a settle loop over several executions."""
    ledger = FakeLedger(slices=8, halts={2: ["401 invalid_api_key"] * 4}, due_seconds=[0.0] * 5)
    ledger.settled_at_a_time_max = 1
    async with open_stage(address, "recorded-continued", ledger) as stage:
        handle = await stage.start(slices_at_once=2)
        await finish(handle)
        return await stage.histories(handle)


async def record_worker_lost(address: str) -> list[WorkflowHistory]:
    """A worker process dies by SIGKILL in a slice, and another one carries the run on."""
    task_queue = "recorded-worker-lost"
    first = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.workflows.mortal_worker", address, task_queue, cwd=ROOT
    )
    stage = Stage(await connect(address), task_queue, FakeLedger())
    handle = await stage.start(timing=Timing.TESTS)
    if await first.wait() != -signal.SIGKILL:
        raise RuntimeError("the worker ended in another way than by its own hand")
    async with open_stage(address, task_queue, FakeLedger()):
        await finish(handle)
        return await stage.histories(handle)


async def record_refused(address: str) -> list[WorkflowHistory]:
    """Another run has the period."""
    held_by = Lock(acquired=False, run_id="billing-run/acct_fake/2031-03", phase="charging")
    async with open_stage(address, "recorded-refused", FakeLedger(held_by=held_by)) as stage:
        handle = await stage.start()
        await finish(handle)
        return await stage.histories(handle)


async def record_failed(address: str) -> list[WorkflowHistory]:
    """The source can't be billed."""
    async with open_stage(
        address, "recorded-failed", FakeLedger(plan_refused="row 7: negative amount")
    ) as stage:
        handle = await stage.start()
        await finish(handle)
        return await stage.histories(handle)


RECORDINGS: dict[str, Recording] = {
    "happy": record_happy,
    "halted": record_halted,
    "settled_after_tick": record_settled_after_tick,
    "worker_lost": record_worker_lost,
    "refused": record_refused,
    "failed": record_failed,
}


async def record_all() -> None:
    """Replace every recorded history."""
    for path in FOLDER.glob("*.json"):
        path.unlink()
    await _record_on(FAST_CONTINUE_AS_NEW, RECORDINGS)
    await _record_on(FAST_CONTINUE_AS_NEW | RESTLESS, {"continued": record_continued})


async def _record_on(dynamic_config: dict[str, str], recordings: dict[str, Recording]) -> None:
    with tempfile.TemporaryDirectory(prefix="chargeonce-record-") as directory:
        server = TemporalServer(Path(directory), headless=True, durable=False, dynamic_config=dynamic_config)
        await server.start()
        try:
            for name, record in recordings.items():
                _write(name, await record(server.address))
        finally:
            await server.stop()


def _write(name: str, histories: list[WorkflowHistory]) -> None:
    for number, history in enumerate(histories, start=1):
        path = FOLDER / (f"{name}_{number}.json" if len(histories) > 1 else f"{name}.json")
        events = json.loads(history.to_json())
        path.write_text(json.dumps(events, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{path.name}: {len(history.events)} events")


if __name__ == "__main__":
    asyncio.run(record_all())
