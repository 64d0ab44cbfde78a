import asyncio
import itertools
import random
from collections import Counter

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode

from deploy.temporal_server import TemporalServer
from tests.workflows.fake_ledger import FakeLedger
from tests.workflows.stage import RunHandle, Stage, decide, finish, open_stage, tick
from tests.workflows.test_replay import replay
from workflows.contracts import HoldKind, Progress, Timing

SEEDS = 50
SEEDS_AT_ONCE = 10
SLICES = 6
PAUSE_SECONDS_MAX = 0.03
SLICE_SECONDS_MAX = 0.05
UPDATES = ("pause", "resume", "tick")


async def send(handle: RunHandle, update: str) -> None:
    """Send an update; that it comes too late, for the run or for its state, is an answer as well."""
    try:
        if update == "tick":
            await tick(handle)
        else:
            await decide(handle, update)
    except WorkflowUpdateFailedError:
        return
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise


async def decide_at_random(handle: RunHandle, chance: random.Random) -> None:
    """Send updates, alone and several at once, while slices end; the last word is a resume or a cancel."""
    for _ in range(chance.randint(3, 8)):
        await asyncio.sleep(chance.uniform(0, PAUSE_SECONDS_MAX))
        await asyncio.gather(*(send(handle, chance.choice(UPDATES)) for _ in range(chance.randint(1, 3))))
    await send(handle, chance.choice(("resume", "cancel")))


async def run_one(address: str, task_queue: str, seed: int) -> None:
    """Run one seed to its end, then look at what was charged, and replay every history of it."""
    chance = random.Random(seed)
    ledger = FakeLedger(slices=SLICES)
    ledger.slice_seconds = lambda: chance.uniform(0, SLICE_SECONDS_MAX)
    ledger.due_seconds = [chance.uniform(0, 0.5) for _ in range(chance.randint(0, 3))]
    if chance.random() < 0.3:
        met = Progress(halted="no answer", halted_kind=HoldKind.BREAKER, closes_by_itself=True)
        ledger.halts = {chance.randrange(SLICES): [met]}
    async with open_stage(address, f"{task_queue}-{seed}", ledger) as stage:
        handle = await stage.start(timing=Timing.TESTS, slices_at_once=chance.randint(1, 4))
        await decide_at_random(handle, chance)
        report = await finish(handle)
        await expect_whole(stage, handle, ledger)
    assert sum(report.counts.values()) == report.selected
    assert report.counts.get("canceled", 0) == 10 * len(ledger.slices_canceled)


async def expect_whole(stage: Stage, handle: RunHandle, ledger: FakeLedger) -> None:
    """Each slice was charged or canceled once, no event is there twice, and each history replays."""
    assert Counter(ledger.slices_charged + ledger.slices_canceled) == Counter(range(SLICES))
    actions = [action for action, _ in ledger.events]
    assert all(one != other for one, other in itertools.pairwise(actions)), actions
    for history in await stage.histories(handle):
        await replay(history)


@pytest.mark.parametrize("first_seed", range(0, SEEDS, SEEDS_AT_ONCE))
async def test_i25_b_decisions_while_activities_finish_replay_in_every_order(
    temporal_server: TemporalServer, task_queue: str, first_seed: int
) -> None:
    """Pause, resume and cancel come while slices end, shuffled by fifty seeds: no history fails to replay."""
    print("seeds", first_seed, "to", first_seed + SEEDS_AT_ONCE - 1)
    seeds = range(first_seed, first_seed + SEEDS_AT_ONCE)
    async with asyncio.TaskGroup() as group:
        for seed in seeds:
            group.create_task(run_one(temporal_server.address, task_queue, seed))


async def test_decisions_outlast_continue_as_new(restless_server: TemporalServer, task_queue: str) -> None:
    """On a server that asks for a new execution every few events, the same holds, and no decision is lost."""
    async with asyncio.TaskGroup() as group:
        for seed in range(SEEDS, SEEDS + SEEDS_AT_ONCE):
            group.create_task(run_one(restless_server.address, task_queue, seed))
