import random

import pytest

from tests.auditor import audit
from tests.crash.world import World, expected_counts, outcomes_of

LINES = 400
KILLS = 6
SEEDS = tuple(range(101, 109))


def _faults(dice: random.Random) -> list[dict[str, object]]:
    """Draw a plan: lost answers on both sides of the booking, unstored and stored failures, rate limits."""
    create = "^/v1/payment_intents$"
    return [
        {
            "name": "lost",
            "match": {"nth": dice.randrange(7, 30)},
            "place": "after",
            "effect": {"kind": "drop"},
        },
        {
            "name": "unsent",
            "match": {"nth": dice.randrange(7, 30)},
            "place": "before",
            "effect": {"kind": "drop"},
        },
        {
            "name": "busy",
            "match": {"nth": dice.randrange(11, 40)},
            "effect": {"kind": "error", "status": 429},
        },
        {
            "name": "down",
            "match": {"nth": dice.randrange(11, 40)},
            "effect": {"kind": "error", "status": 503},
        },
        {
            "name": "stored",
            "match": {"nth": dice.randrange(11, 40), "path": create},
            "place": "after",
            "effect": {"kind": "error", "status": 500, "stored": True},
        },
    ]


@pytest.mark.proof
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
async def test_kills_and_faults_of_one_seed(seed: int, world: World) -> None:
    """Six kills at random moments under a random fault plan: every line once, and nothing to accuse."""
    dice = random.Random(seed)
    source = world.write_source(LINES)
    world.sim.set_faults(*_faults(dice))
    handle = await world.start_run(source, slice_size=dice.choice((20, 50, 150)))
    for moment in sorted(dice.sample(range(5, 2 * LINES - 100), KILLS)):
        worker = await world.start_worker()
        await world.wait_for_requests(moment)
        worker.kill()
        await worker.wait()

    await world.start_worker()
    report = await world.finish(handle)

    assert outcomes_of(report) == expected_counts(LINES)
    summary = await audit(world.sim.url, world.database.owner_url)
    assert summary.double_charges == 0, f"seed {seed}"
