"""A held run begins nothing new, and what is in flight goes on as far as it can without a new version."""

import asyncio

import pytest

from activities import run_watch
from activities.carry import LATER_SECONDS, End
from activities.ledger.control import ControlLedger
from activities.run_watch import RunWatch, watching
from activities.send import Sent
from activities.settle import HELD_SECONDS
from tests.activities.scene import (
    CONFIRM,
    CREATE,
    GOOD_CARD,
    RUN_ID,
    Scene,
    fault,
)
from workflows.domain.charge import Charge
from workflows.domain.keys import Operation
from workflows.domain.mode import Mode
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS

operations = pytest.mark.parametrize("operation", [CREATE, CONFIRM], ids=["create", "confirm"])


async def states(scene: Scene) -> list[str]:
    """Return where the charges stand, sorted."""
    return sorted(row["state"] for row in await scene.pool.fetch("SELECT state FROM charges"))


@pytest.mark.parametrize("kind", ["paused", "canary", "breaker", "cap"])
async def test_a_held_run_begins_nothing_and_goes_on_as_it_was(scene: Scene, kind: str) -> None:
    """Whatever it is held for: nothing is claimed or sent, and after the resume everything is charged."""
    await scene.plan([GOOD_CARD] * 2)
    await scene.pause(kind)
    assert await scene.work() == {}
    assert scene.posts == []
    await scene.resume()
    assert set((await scene.work()).values()) == {End.SETTLED}
    assert len(scene.sim.movements) == 2
    await scene.audit()


@operations
async def test_a_pause_in_the_middle_leaves_the_charge_where_the_answer_put_it(
    scene: Scene, operation: Operation
) -> None:
    """The pause commits while a request is on the wire: its answer is recorded, no next key is opened."""
    await scene.plan([GOOD_CARD] * 2)
    a = scene.worker()
    send_first = a.sender.send_first
    paused = 0

    async def send_and_be_paused(charge: Charge, sending: Operation, *, reason: str) -> Sent:
        nonlocal paused
        sent = await send_first(charge, sending, reason=reason)
        if sending is operation and not paused:
            await scene.pause()
            paused += 1
        return sent

    a.sender.send_first = send_and_be_paused  # type: ignore[assignment, method-assign]
    first, second = await a.claim()
    end = await a.carrier.carry(first)
    assert end is (End.HELD if operation is CREATE else End.SETTLED)
    # The watch has not looked yet: the ledger refuses the intent, and then everybody knows.
    assert await a.carrier.carry(second) is End.HELD
    assert a.watch.mode is Mode.HELD
    assert await states(scene) == (
        ["planned", "prepared"] if operation is CREATE else ["planned", "succeeded"]
    )
    assert await scene.pool.fetchval("SELECT count(*) FROM charges WHERE due_at IS NOT NULL") == 0
    await scene.resume()
    assert set((await scene.work()).values()) == {End.SETTLED}
    assert sorted(scene.wire) == ["confirm v1"] * 2 + ["create v1"] * 2
    await scene.audit()


@operations
@pytest.mark.parametrize("place", ["before", "after"], ids=["not_booked", "booked"])
async def test_what_is_in_flight_settles_while_the_run_is_held(
    scene: Scene, operation: Operation, place: str
) -> None:
    """A lost answer is looked up, and the same key sent again inside its window: no new key is opened."""
    await scene.plan()
    scene.fault("drop", place=place, operation=operation)
    a = scene.worker()
    charge = await a.claim_one()
    if operation is CONFIRM:
        charge = (await a.sender.send_first(charge, CREATE, reason="planned")).charge
    await a.sender.send_first(charge, operation, reason="first")
    scene.clear_faults()
    await scene.pause()
    ends = await scene.work()
    assert set(ends.values()) == {End.HELD if operation is CREATE else End.SETTLED}
    assert await states(scene) == ["prepared" if operation is CREATE else "succeeded"]
    assert scene.wire.count(f"{operation} v1") == (2 if place == "before" else 1)
    await scene.resume()
    await scene.work()
    assert await states(scene) == ["succeeded"]
    await scene.audit()


@operations
async def test_past_the_window_a_held_charge_waits_for_the_resume(scene: Scene, operation: Operation) -> None:
    """Only version 2 could help, which is something new: looked up now and then, and left."""
    await scene.plan()
    a = scene.worker()
    charge = await a.claim_one()
    if operation is CONFIRM:
        charge = (await a.sender.send_first(charge, CREATE, reason="planned")).charge
    await a.intend(charge, operation)
    await scene.pause()
    await scene.set_age(WINDOW_SECONDS)
    for number in range(2):
        await scene.set_age(WINDOW_SECONDS + number * HELD_SECONDS)
        assert list((await scene.work()).values()) == [End.HELD]
        assert scene.lookups == number + 1
        assert await scene.work() == {}
    assert f"{operation} v2" not in scene.wire
    await scene.resume()
    await scene.set_age(WINDOW_SECONDS + 2 * HELD_SECONDS)
    assert list((await scene.work()).values()) == [End.SETTLED]
    assert f"{operation} v2" in scene.wire
    assert await states(scene) == ["succeeded"]
    await scene.audit()


async def test_a_storm_while_held_leaves_charges_for_later_as_ever(scene: Scene) -> None:
    """Resends of a held run have the same bounds: a due time, and then another try."""
    await scene.plan()
    a = scene.worker()
    await a.intend(await a.claim_one(), CREATE)
    await scene.pause()
    scene.sim.set_faults(fault("error", status=429, operation=CREATE))
    assert list((await scene.work()).values()) == [End.DEFERRED]
    scene.clear_faults()
    await scene.set_age(LATER_SECONDS)
    assert list((await scene.work()).values()) == [End.HELD]
    assert await states(scene) == ["prepared"]


async def test_a_decision_is_seen_while_work_goes_on(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch reads again and again: a pause, a resume and a cancel are known without asking."""
    monkeypatch.setattr(run_watch, "POLL_SECONDS", 0.01)
    await scene.plan()

    async def wait_for(watch: RunWatch, mode: Mode) -> None:
        async with asyncio.timeout(10):
            while watch.mode is not mode:  # noqa: ASYNC110 - it is the polling that is tested
                await asyncio.sleep(0.005)

    async with watching(ControlLedger(scene.pool), RUN_ID) as watch:
        assert watch.mode is Mode.NORMAL
        await scene.pause()
        await wait_for(watch, Mode.HELD)
        await scene.resume()
        await wait_for(watch, Mode.NORMAL)
        await scene.cancel()
        await wait_for(watch, Mode.CANCELING)


async def test_before_it_has_looked_a_watch_lets_nothing_begin(scene: Scene) -> None:
    """Not knowing is no leave; and once a cancel was seen, no older answer undoes it."""
    await scene.plan()
    watch = RunWatch(ControlLedger(scene.pool), RUN_ID)
    modes = [watch.mode]
    await scene.cancel()
    await watch.refresh()
    await scene.owner.execute("UPDATE billing_runs SET canceling = false")
    await watch.refresh()
    assert [*modes, watch.mode] == [Mode.HELD, Mode.CANCELING]
    assert (await scene.charge()).state is State.PLANNED
