"""Pauses, resumes and a cancel at any moment of a run that several processes carry, over a wire at its worst.

Every run prints its seed; CHARGEONCE_SEED repeats one.
"""

import asyncio
import random

import pytest

from deploy.postgres import Database
from tests.activities.conftest import hurry
from tests.activities.scene import DECLINING_CARD, GOOD_CARD, SLOW_DEBIT, Scene, Worker, open_scene
from tests.activities.test_races import assert_invariants, carry_all, draw_seed, faults, finish, states
from workflows.domain.states import SETTLED, State

CHARGES = 40


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


async def count_begun(scene: Scene) -> int:
    """Return how many keys of creates and confirms there are: each is something that was begun."""
    keys = "SELECT count(*) FROM keys WHERE operation IN ('create', 'confirm')"
    return await scene.pool.fetchval(keys)  # type: ignore[no-any-return]


async def carry_again_and_again(scene: Scene, worker: Worker, dice: random.Random) -> None:
    """Claim and carry, until cut off; now and then take the charges away from whoever has them."""
    while True:
        carrying = asyncio.create_task(carry_all(worker))
        await asyncio.sleep(dice.uniform(0, 0.05))
        if dice.random() < 0.5:
            await worker.claim()
        await carrying


async def decide_at_random(scene: Scene, dice: random.Random) -> None:
    """Pause and resume a few times; while the run is paused nothing is begun, not even once."""
    for _ in range(dice.randrange(4)):
        await asyncio.sleep(dice.uniform(0, 0.25))
        assert (await scene.pause()).changed
        begun = await count_begun(scene)
        await asyncio.sleep(dice.uniform(0.02, 0.1))
        assert await count_begun(scene) == begun, "something was begun while the run was paused"
        assert (await scene.resume()).changed
    await asyncio.sleep(dice.uniform(0, 0.6))


async def carry_meanwhile(scene: Scene, dice: random.Random) -> None:
    """Let two processes carry while decisions are made, and then come to rest."""
    carrying = [
        asyncio.create_task(carry_again_and_again(scene, scene.worker(timeout_seconds=5), dice))
        for _ in range(2)
    ]
    try:
        await decide_at_random(scene, dice)
        await assert_invariants(scene)
        if dice.random() < 0.7:
            await scene.cancel()
            begun = await count_begun(scene)
            await asyncio.sleep(0.1)
            assert await count_begun(scene) == begun, "something was begun in a canceled run"
    finally:
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)


@pytest.mark.parametrize("number", range(3))
async def test_decisions_at_any_moment_keep_the_promise(stage: Database, number: int) -> None:
    """Counts whole, nobody twice, nothing begun against a decision, and nothing left open by a cancel."""
    seed = draw_seed() + number
    dice = random.Random(seed)
    cards = dice.choices([GOOD_CARD, DECLINING_CARD, SLOW_DEBIT], weights=[8, 1, 1], k=CHARGES)
    async with open_scene(stage, seed=seed, latency_ms=3) as scene:
        await scene.plan(cards)
        scene.sim.set_faults(*faults(0.05))
        await carry_meanwhile(scene, dice)
        await assert_invariants(scene)
        await finish(scene, 0)
        await assert_invariants(scene)
        ended = await states(scene)
        assert ended.keys() <= SETTLED, (seed, ended)
        canceled = await scene.pool.fetchval("SELECT canceling FROM billing_runs")
        assert canceled or State.CANCELED not in ended, (seed, ended)
        assert await scene.open_at_stripe() == [], seed
