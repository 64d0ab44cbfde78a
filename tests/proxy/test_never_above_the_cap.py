"""Whatever a client does, and whichever proxy dies: the book never exceeds the cap, and can reach it."""

import asyncio
import os
import random
from pathlib import Path

import pytest

from deploy.postgres import Database
from tests.forking import Nursery
from tests.proxy.reckless import Case, draw_case, draw_faults
from tests.proxy.two_proxies import TwoProxies, open_two_proxies

CLIENTS = 3
BATCH = 16
# By then what was to be executed late is executed, and a sweep reads the events of this batch alone.
LATER_SECONDS = 4_000.0
PROOF_BATCHES, PROOF_BATCH = 75, 32
SEED = int(os.environ.get("CHARGEONCE_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 1_000_000)


async def run_batch(world: TwoProxies, first_seed: int, size: int) -> dict[str, int]:
    """Run cases side by side under faults and kills, settle them, and check each."""
    dice = random.Random(first_seed)
    cases = await asyncio.gather(*(draw_case(world, first_seed + number) for number in range(size)))
    world.sim.set_faults(*draw_faults(dice))
    killing = asyncio.create_task(world.kill_at_random(dice, pause_seconds=(0.05, 0.4)))
    try:
        await asyncio.gather(*(case.misbehave() for case in cases for _ in range(CLIENTS)))
    finally:
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)
    async with world.busy:
        world.sim.set_faults()
    for case in cases:
        assert case.moved <= case.cap, f"seed {case.seed}: {case.moved} of {case.cap}"
    world.sim.clock.advance(LATER_SECONDS)
    await world.owner.execute(
        "SELECT move_ledger_clock(offset_seconds + $1, NULL) FROM ledger_clock", LATER_SECONDS
    )
    await asyncio.gather(*(case.settle() for case in cases))
    await world.recorded()
    budgets = [case.budget for case in cases]
    await world.sweep(budgets)
    results = await asyncio.gather(*(check(case) for case in cases))
    return {"cases": size, "capped": sum(results)}


async def check(case: Case) -> bool:
    """Check one case after everything is settled; return whether its cap was the limit."""
    story = f"seed {case.seed}"
    query = "SELECT * FROM vault_intents WHERE held_minor > 0 AND budget = $1"
    for stuck in await case.world.owner.fetch(query, case.budget):
        # No answer came to the first send, and a refusal to the second: only a cancel makes sure.
        await case.rule_out(stuck["intent"])
    await case.world.recorded()
    held = await case.world.owner.fetch(query, case.budget)
    assert held == [], (story, held, case.undetermined)
    refused = await case.top_up()
    await case.world.recorded()
    row = await case.world.owner.fetchrow("SELECT * FROM vault_budgets WHERE budget = $1", case.budget)
    assert row is not None
    assert case.moved <= case.cap, f"{story}: {case.moved} of {case.cap}"
    assert (row["settled_minor"], row["held_minor"], row["excess_minor"]) == (case.moved, 0, 0), story
    assert not refused or case.cap - case.moved < min(refused), story
    return bool(refused)


async def test_the_book_never_exceeds_the_cap(database: Database, nursery: Nursery, tmp_path: Path) -> None:
    """Reckless clients, faults, and two proxies killed at random: never one unit above the cap."""
    print(f"seed {SEED}: repeat with CHARGEONCE_TEST_SEED={SEED}")
    async with open_two_proxies(database, tmp_path, nursery) as world:
        print(await run_batch(world, SEED * 1_000, BATCH), "kills", world.kills)


@pytest.mark.proof
@pytest.mark.timeout(3_600)
async def test_thousands_of_cases_never_exceed_the_cap(
    database: Database, nursery: Nursery, tmp_path: Path
) -> None:
    """The same over thousands of seeded cases, in batches that share the processes."""
    totals = {"cases": 0, "capped": 0}
    async with open_two_proxies(database, tmp_path, nursery) as world:
        for batch in range(PROOF_BATCHES):
            for name, count in (await run_batch(world, batch * 1_000, PROOF_BATCH)).items():
                totals[name] += count
        print(totals, "kills", world.kills)
    assert totals["capped"] > totals["cases"] / 3
