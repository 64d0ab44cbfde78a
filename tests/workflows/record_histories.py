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
from tests.workflows.fake_ledger import LINES_PER_SLICE, PLAN_HASH, FakeLedger
from tests.workflows.stage import WHO, Stage, connect, decide, finish, open_stage, progress_once, tick
from workflows.contracts import Approval, Canary, CapRaise, HoldKind, Lock, Progress, Timing

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


async def record_decided(address: str) -> list[WorkflowHistory]:
    """Approved, paused and resumed before its canary is judged, released, its cap reached and raised."""
    cap = Progress(halted="the cap is reached", halted_kind=HoldKind.CAP)
    ledger = FakeLedger(slices=3, approved=False, halts={2: [cap]})
    async with open_stage(address, "recorded-decided", ledger) as stage:
        handle = await stage.start(
            timing=Timing.PRODUCTION, slices_at_once=1, canary=Canary(lines=LINES_PER_SLICE)
        )
        await progress_once(handle, lambda progress: progress.phase == "approve")
        approval = Approval(who=WHO, reason="the sums are right", plan_hash=PLAN_HASH)
        ledger.slices_may_end.clear()
        await decide(handle, "approve", approval)
        await ledger.until(lambda: ledger.calls["charge_slice"] == 1)
        await decide(handle, "pause")
        ledger.slices_may_end.set()
        await decide(handle, "resume")
        await progress_once(handle, lambda progress: progress.hold is HoldKind.CANARY)
        await decide(handle, "resume")
        await progress_once(handle, lambda progress: progress.hold is HoldKind.CAP)
        await decide(handle, "raise_cap", CapRaise(who=WHO, reason="late", caps_minor={"usd": 2_000}))
        await finish(handle)
        return await stage.histories(handle)


async def record_silence(address: str) -> list[WorkflowHistory]:
    """A breaker opens on silence and closes by itself, twice: an answer, and a slice that goes well."""
    silence = Progress(halted="no answer", halted_kind=HoldKind.BREAKER, closes_by_itself=True)
    ledger = FakeLedger(slices=3, halts={0: [silence], 1: [silence]}, due_seconds=[0.0])
    async with open_stage(address, "recorded-silence", ledger) as stage:
        handle = await stage.start(timing=Timing.PRODUCTION, slices_at_once=1)
        for times in (1, 2):
            await ledger.until(lambda times=times: ledger.calls["hold_run"] == times)  # type: ignore[misc]
            await progress_once(handle, lambda progress: progress.hold is HoldKind.BREAKER)
            await tick(handle)
        await finish(handle)
        return await stage.histories(handle)


async def record_canceled(address: str) -> list[WorkflowHistory]:
    """Canceled while two slices are at work."""
    ledger = FakeLedger(slices=4)
    ledger.slices_may_end.clear()
    async with open_stage(address, "recorded-canceled", ledger) as stage:
        handle = await stage.start(slices_at_once=2)
        await ledger.until(lambda: ledger.calls["charge_slice"] == 2)
        await decide(handle, "cancel")
        ledger.slices_may_end.set()
        await finish(handle)
        return await stage.histories(handle)


async def record_recovered(address: str) -> list[WorkflowHistory]:
    """A run that was charging when its workflow was lost."""
    ledger = FakeLedger(phase="charging", slices_charged=[0])
    async with open_stage(address, "recorded-recovered", ledger) as stage:
        handle = await stage.start(recovered_owner="the old one")
        await finish(handle)
        return await stage.histories(handle)


async def record_retried(address: str) -> list[WorkflowHistory]:
    """Retries over days, with a pause over one of them and a retry whose answer has to be looked up."""
    ledger = FakeLedger(waits=[[3 * DAY, 5 * DAY], [DAY, 2 * DAY]])
    async with open_stage(address, "recorded-retried", ledger) as stage:
        handle = await stage.start(timing=Timing.PRODUCTION)
        await progress_once(handle, lambda progress: progress.waiting_until_epoch_seconds is not None)
        await decide(handle, "pause")
        ledger.move_clock(2 * DAY)
        await decide(handle, "resume")
        await ledger.until(lambda: ledger.calls["follow_up_due"] == 2)
        await progress_once(handle, lambda progress: progress.waiting_until_epoch_seconds is not None)
        ledger.due_seconds.append(0.0)
        ledger.move_clock(4 * DAY)
        await tick(handle)
        await finish(handle)
        return await stage.histories(handle)


async def record_two_hundred_lines(address: str) -> list[WorkflowHistory]:
    """Twenty slices of ten lines, four at once, a halted one among them and something left to settle."""
    ledger = FakeLedger(slices=20, halts={7: ["429 rate_limit"]}, due_seconds=[0.0])
    async with open_stage(address, "recorded-two-hundred-lines", ledger) as stage:
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
    "decided": record_decided,
    "silence": record_silence,
    "canceled": record_canceled,
    "recovered": record_recovered,
    "retried": record_retried,
    "two_hundred_lines": record_two_hundred_lines,
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
