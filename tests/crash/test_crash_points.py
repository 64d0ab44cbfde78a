import pytest

from activities.crash_points import CrashPoint
from tests.crash.world import World, expected_counts, outcomes_of

LINES = 60

# Lost and stored answers, so that the settling points are reached too. Confirms get no stored 500: over a
# declined card it leaves nothing but waiting for the window's end (I14), which is another test's subject.
FAULTS = (
    {
        "name": "drop-after-booking",
        "match": {"nth": 9},
        "place": "after",
        "effect": {"kind": "drop"},
    },
    {
        "name": "stored-500-booked",
        "match": {"nth": 7, "path": "^/v1/payment_intents$"},
        "place": "after",
        "effect": {"kind": "error", "status": 500, "stored": True},
    },
)

NTH = {
    CrashPoint.LOCK_BEFORE_COMMIT: 1,
    CrashPoint.LOCK_AFTER_COMMIT: 1,
    CrashPoint.PLAN_WHILE_STREAMING: 1,
    CrashPoint.PLAN_BEFORE_COMMIT: 1,
    CrashPoint.PLAN_AFTER_COMMIT: 1,
    CrashPoint.SLICE_AFTER_CLAIM: 2,
    CrashPoint.SETTLE_AFTER_LOOKUP: 1,
    CrashPoint.SETTLE_AFTER_APPLY: 1,
    CrashPoint.CLOSE_BEFORE_COMMIT: 1,
    CrashPoint.CLOSE_AFTER_COMMIT: 1,
}
SEND_NTH = 17  # in the middle of a slice, with others in flight
CANCEL_NTH = 3
WHILE_CANCELING = tuple(point for point in CrashPoint if point.startswith("cancel_"))
ON_THE_WAY = tuple(point for point in CrashPoint if point not in WHILE_CANCELING)
# Creates go through and confirms don't: whoever cancels then has PaymentIntents to cancel.
CONFIRMS_REFUSED = {
    "name": "confirms-refused",
    "match": {"path": "/confirm$"},
    "effect": {"kind": "error", "status": 401},
}


@pytest.mark.parametrize("point", ON_THE_WAY, ids=lambda point: point.value)
async def test_a_worker_killed_at(point: CrashPoint, world: World) -> None:
    """Killed with SIGKILL at this point, the run ends after a restart with every line charged once."""
    source = world.write_source(LINES)
    world.sim.set_faults(*FAULTS)
    dying = await world.start_worker(crash_at=f"{point}:{NTH.get(point, SEND_NTH)}")
    handle = await world.start_run(source)
    await world.wait_for_death(dying)

    await world.start_worker()
    report = await world.finish(handle)

    assert report.phase == "closed", world.logs()
    assert outcomes_of(report) == expected_counts(LINES)
    summary = world.sim.summary("chargeonce_charge")
    assert summary["double_charges"] == []
    assert summary["succeeded"] == expected_counts(LINES)["succeeded"]


@pytest.mark.parametrize("point", WHILE_CANCELING, ids=lambda point: point.value)
async def test_a_worker_killed_while_canceling_at(point: CrashPoint, world: World) -> None:
    """Killed at this point of a cancel, the run ends after a restart: all canceled, nothing left open."""
    source = world.write_source(LINES)
    world.sim.set_faults(CONFIRMS_REFUSED)
    dying = await world.start_worker(crash_at=f"{point}:{CANCEL_NTH}")
    handle = await world.start_run(source)
    await world.wait_for_hold(handle)
    await world.cancel(handle)
    await world.wait_for_death(dying)

    await world.start_worker()
    report = await world.finish(handle)

    assert report.phase == "closed", world.logs()
    assert {name: count for name, count in report.counts.items() if count} == {"canceled": LINES}
    summary = world.sim.summary("chargeonce_charge")
    assert summary["succeeded"] == 0
    assert await world.open_payment_intents() == []


def test_every_crash_point_has_a_crash_test() -> None:
    """The list in the code and the list of crash tests are the same."""
    assert {*ON_THE_WAY, *WHILE_CANCELING} == set(CrashPoint)
