"""Several senders over the same charges, with the wire at its worst, and the book as the judge.

Every run prints its seed; CHARGEONCE_SEED repeats one.
"""

import asyncio
import os
import random
from datetime import timedelta
from typing import Any

import pytest

from activities.carry import End
from deploy.postgres import Database
from tests.activities.conftest import hurry
from tests.activities.scene import (
    DECLINING_CARD,
    GOOD_CARD,
    OPERATIONS_SENT,
    RUN_ID,
    SLOW_DEBIT,
    Scene,
    Worker,
    fault,
    open_scene,
    seconds,
)
from workflows.domain.charge import Intent
from workflows.domain.errors import StaleWrite
from workflows.domain.states import SETTLED, State
from workflows.domain.window import SAFETY_MARGIN_SECONDS, WINDOW_SECONDS

CHARGES = 50
DAY_SECONDS = 24 * 3600.0


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


def draw_seed() -> int:
    """Return the seed of this run, and print it."""
    seed = int(os.environ.get("CHARGEONCE_SEED") or random.randrange(1 << 30))
    print(f"CHARGEONCE_SEED={seed}")
    return seed


def faults(share: float) -> list[dict[str, Any]]:
    """Return every kind of fault, each on this share of the POSTs."""
    match = {"probability": share}
    return [
        fault("drop", name="lost before", place="before", match=match),
        fault("drop", name="lost after", place="after", match=match),
        fault("error", name="stored 500", status=500, stored=True, book=0.5, match=match),
        fault("error", name="503", status=503, match=match),
        fault("error", name="429", status=429, match=match),
        fault("error", name="409", status=409, match=match),
    ]


async def carry_all(worker: Worker) -> list[End]:
    """Claim what is due and carry it on at once, as a slice does."""
    claimed = await worker.claim()
    return list(await asyncio.gather(*(worker.carrier.carry(charge) for charge in claimed)))


async def finish(scene: Scene, age_seconds: float) -> None:
    """Switch the faults off and let three windows pass, so that everything that can settle has settled."""
    scene.clear_faults()
    for _ in range(3):
        age_seconds += WINDOW_SECONDS + 60
        await scene.set_age(age_seconds)
        await carry_all(scene.worker())


async def assert_invariants(scene: Scene) -> None:
    """I2, I3 and I7 by the book and the wire, I4, I5 and I9 by the ledger's own rows."""
    await scene.audit()
    ages = await scene.pool.fetch(
        "SELECT k.key, a.send_no, a.intended_at - k.first_intended_at AS age,"
        "       k.first_intended_at - p.first_intended_at AS behind"
        "  FROM keys k JOIN attempts a USING (key)"
        "  LEFT JOIN keys p ON p.charge_id = k.charge_id AND p.operation = k.operation"
        "                  AND p.version = k.version - 1"
    )
    for row in ages:
        if row["send_no"] > 1:
            limit = timedelta(seconds=WINDOW_SECONDS - SAFETY_MARGIN_SECONDS)
            assert row["age"] < limit, f"I5: {row['key']} was sent again at an age of {row['age']}"
        if row["behind"] is not None:
            assert row["behind"] >= timedelta(seconds=WINDOW_SECONDS), f"I4: {row['key']} came too early"
    versions = await scene.pool.fetch(
        "SELECT c.charge_id, k.operation, max(k.version) = count(*) AS gapless"
        "  FROM keys k JOIN charges c USING (charge_id) GROUP BY 1, 2"
    )
    assert all(row["gapless"] for row in versions), "I4: a version was left out"
    counted = await scene.pool.fetchval("SELECT sum(lines) FROM run_counts($1)", RUN_ID)
    assert counted == await scene.pool.fetchval("SELECT selected FROM billing_runs"), "I9"


async def states(scene: Scene) -> dict[str, int]:
    """Return how many charges stand where."""
    rows = await scene.pool.fetch("SELECT state, count(*) AS count FROM charges GROUP BY state")
    return {row["state"]: row["count"] for row in rows}


async def test_two_processes_race_over_the_same_charges(stage: Database) -> None:
    """50 charges, two processes that take them from each other again and again: the book shows each once."""
    seed = draw_seed()
    dice = random.Random(seed)
    async with open_scene(stage, seed=seed, latency_ms=3) as scene:
        await scene.plan([GOOD_CARD] * CHARGES)
        scene.sim.set_faults(*faults(0.06))
        workers = [scene.worker(timeout_seconds=5), scene.worker(timeout_seconds=5)]

        async def take_again_and_again(worker: Worker) -> None:
            for _ in range(4):
                carrying = asyncio.create_task(carry_all(worker))
                await asyncio.sleep(dice.uniform(0, 0.15))
                if dice.random() < 0.5:
                    await carrying
                else:
                    await carry_all(worker)
                    await carrying

        await asyncio.gather(*(take_again_and_again(worker) for worker in workers))
        await assert_invariants(scene)
        await finish(scene, 0)
        await assert_invariants(scene)
        assert await states(scene) == {State.SUCCEEDED: CHARGES}
        assert len(scene.sim.movements) == CHARGES


async def test_a_claim_that_waited_has_the_newer_fence(stage: Database) -> None:
    """Rows are locked before the fence is drawn: whoever gets them last has the largest (I13)."""
    async with open_scene(stage) as scene:
        [charge_id] = await scene.plan()
        worker = scene.worker()
        async with scene.pool.acquire() as connection, connection.transaction():
            await connection.execute("SELECT FROM charges FOR UPDATE")
            waiting = asyncio.create_task(worker.ledger.claim_slice(RUN_ID, 0))
            await scene.wait_for_a_blocked_statement()
            taken = await connection.fetchval("UPDATE charges SET fence = nextval('fences') RETURNING fence")
        [claimed] = await waiting
        assert claimed.fence > taken
        assert (await scene.charge(charge_id)).fence == claimed.fence


STEPS = ("work", "work", "work", "freeze", "freeze", "thaw", "thaw", "claim", "move", "move", "faults")
MOVES = ("0:01", "1:00", "6:00", "23:40", "23:50", "24:00", "72:00")


class Story:
    """A random life of a few charges: senders freeze and thaw, clocks move, the wire breaks."""

    def __init__(self, scene: Scene, dice: random.Random) -> None:
        self.scene = scene
        self.dice = dice
        self.age_seconds = 0.0
        self.frozen: list[tuple[Worker, Intent]] = []
        self.steps: list[str] = []

    async def step(self) -> None:
        """Take one random step."""
        name = self.dice.choice(STEPS)
        self.steps.append(name)
        await getattr(self, f"_{name}")()

    async def thaw_all(self) -> None:
        """Let every frozen sender send, however late."""
        while self.frozen:
            await self._thaw()

    async def _work(self) -> None:
        await carry_all(self.scene.worker())

    async def _claim(self) -> None:
        await self.scene.worker().claim()

    async def _freeze(self) -> None:
        worker = self.scene.worker()
        charges = await worker.claim()
        if not charges:
            return
        charge = self.dice.choice(charges)
        try:
            if charge.is_in_flight:
                intent = await worker.intend_again(charge)
            else:
                intent = await worker.intend(charge, OPERATIONS_SENT[charge.state])
        except StaleWrite:
            return  # too old to be sent again
        self.frozen.append((worker, intent))

    async def _thaw(self) -> None:
        if not self.frozen:
            return
        worker, intent = self.frozen.pop(self.dice.randrange(len(self.frozen)))
        await worker.record(intent, await worker.transmit(intent))

    async def _move(self) -> None:
        self.age_seconds += seconds(self.dice.choice(MOVES))
        await self.scene.set_age(self.age_seconds)

    async def _faults(self) -> None:
        self.scene.sim.set_faults(*(faults(0.1) if self.dice.random() < 0.7 else []))


@pytest.mark.parametrize("keys_kept_longer", [False, True], ids=["keys_pruned", "keys_kept_longer"])
async def test_a_random_life_keeps_the_invariants(stage: Database, *, keys_kept_longer: bool) -> None:
    """Senders thaw days later, keys are pruned, answers lost: I2 to I5, I7 and I9 hold at each step."""
    seed = draw_seed()
    dice = random.Random(seed)
    async with open_scene(stage, seed=seed, keys_kept_longer=keys_kept_longer) as scene:
        await scene.plan([GOOD_CARD, GOOD_CARD, GOOD_CARD, DECLINING_CARD, SLOW_DEBIT])
        story = Story(scene, dice)
        for _ in range(30):
            await story.step()
            await assert_invariants(scene)
        await story.thaw_all()
        await finish(scene, story.age_seconds)
        await assert_invariants(scene)
        left = await scene.pool.fetch("SELECT charge_id, state, reason FROM charges")
        for row in left:
            open_for_people = row["state"] == State.CREATING and "canceled" in (row["reason"] or "")
            assert row["state"] in SETTLED or open_for_people, (seed, story.steps, dict(row))
