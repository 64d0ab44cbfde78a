import os
import random

from tests.crash.world import World, expected_counts, outcomes_of

LINES = 300
KILLS = 4
SEED = int(os.environ.get("CHARGEONCE_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 1_000_000)


async def test_workers_killed_at_random_moments_leave_every_line_charged_once(world: World) -> None:
    """Whatever the moments of four SIGKILLs, every line is charged once and repeats stay within bounds."""
    dice = random.Random(SEED)
    print(f"seed {SEED}: repeat with CHARGEONCE_TEST_SEED={SEED}")
    source = world.write_source(LINES)
    handle = await world.start_run(source, slice_size=50)
    moments = sorted(dice.sample(range(5, 2 * LINES - 60), KILLS))
    for moment in moments:
        worker = await world.start_worker()
        await world.wait_for_requests(moment)
        worker.kill()
        await worker.wait()

    await world.start_worker()
    report = await world.finish(handle)

    assert outcomes_of(report) == expected_counts(LINES)
    summary = world.sim.summary("chargeonce_charge")
    assert summary["double_charges"] == [], f"seed {SEED}, moments {moments}"
    assert summary["succeeded"] == expected_counts(LINES)["succeeded"]
    # 16 requests at once: a kill repeats no more than what was in flight.
    assert summary["repeated_posts"] <= KILLS * 16, f"seed {SEED}, moments {moments}"
