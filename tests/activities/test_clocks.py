"""Ledger's and Stripe's clocks more than a minute apart: nothing is sent for the first time (I10)."""

import asyncio

import pytest

from activities import skew_watch
from activities.carry import End
from activities.skew_watch import SkewWatch, skew_of_send
from tests.activities.scene import CREATE, GOOD_CARD, START, Scene
from workflows.domain.states import State

AHEAD_SECONDS = 90.0


@pytest.fixture(autouse=True)
def _look_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skew_watch, "LOOK_AGAIN_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("intended", "elapsed", "stripe", "skew"),
    [
        (1000.0, 0.2, 1000.0, 0.0),
        (1000.9, 0.2, 1000.0, 0.9),  # the header's one-second grain
        (1000.0, 15.0, 1007.0, 0.0),  # anywhere between intent and answer
        (1000.0, 600.0, 1000.0, 0.0),  # a process that stood still for ten minutes
        (1090.0, 0.2, 1000.0, 90.0),
        (1000.0, 0.5, 1090.0, -89.5),
    ],
)
def test_a_wait_is_no_skew(intended: float, elapsed: float, stripe: float, skew: float) -> None:
    """What lies outside of the time between intent and answer is skew, and nothing else."""
    seen = skew_of_send(intended_epoch_seconds=intended, elapsed_seconds=elapsed, stripe_epoch_seconds=stripe)
    assert seen == pytest.approx(skew)
    assert skew_of_send(intended_epoch_seconds=1.0, elapsed_seconds=1.0, stripe_epoch_seconds=None) is None


def test_the_answer_to_an_older_request_says_nothing() -> None:
    """Answers overtake each other: the newest request's is what the clocks are judged by."""
    watch = SkewWatch()
    assert watch.rule() is None
    watch.observe(90.0, began_seconds=2.0)
    watch.observe(0.0, began_seconds=1.0)
    watch.observe(None, began_seconds=3.0)
    assert watch.rule() is not None
    watch.observe(60.0, began_seconds=3.0)
    assert watch.rule() is None


@pytest.mark.parametrize("ahead_seconds", [AHEAD_SECONDS, -AHEAD_SECONDS])
async def test_clocks_apart_stop_first_sends_with_one_alarm(scene: Scene, ahead_seconds: float) -> None:
    """The first answer shows it: what is planned or prepared waits a minute, with one alarm for all."""
    await scene.plan([GOOD_CARD] * 5)
    await scene.set_age(0, ledger_ahead_seconds=ahead_seconds)
    worker = scene.worker()
    assert set((await worker.work()).values()) == {End.DEFERRED}
    assert scene.wire == ["create v1"]
    rows = await scene.pool.fetch("SELECT state, due_at - ledger_now() AS wait, reason FROM charges")
    assert sorted(row["state"] for row in rows) == ["planned"] * 4 + ["prepared"]
    assert {row["wait"].total_seconds() for row in rows} == {60.0}
    assert all("off Stripe's" in row["reason"] for row in rows)
    assert await scene.decisions() == [("waiting", True)]
    assert await worker.work() == {}


async def test_first_sends_go_on_once_a_lookup_shows_the_clocks_together(scene: Scene) -> None:
    """While they are apart each pass asks before it sends; when they are mended it goes on by itself."""
    await scene.plan([GOOD_CARD] * 3)
    await scene.set_age(0, ledger_ahead_seconds=AHEAD_SECONDS)
    worker = scene.worker()
    await worker.work()
    await scene.set_age(60, ledger_ahead_seconds=AHEAD_SECONDS)
    sent, looked_up = len(scene.posts), scene.lookups
    assert set((await worker.work()).values()) == {End.DEFERRED}
    assert (len(scene.posts), scene.lookups > looked_up) == (sent, True)
    await scene.set_age(300)
    assert set((await worker.work()).values()) == {End.SETTLED}
    assert len(scene.sim.movements) == 3
    await scene.audit()


async def test_clocks_that_were_moved_together_stop_nothing(scene: Scene) -> None:
    """One answer from before the move looks like a day of skew; the lookup says otherwise, and no alarm."""
    await scene.plan([GOOD_CARD] * 2)
    worker = scene.worker()
    scene.fault("delay", place="before", seconds=0.2, operation=CREATE, times=1)
    first, second = await worker.claim()

    async def move_clocks() -> None:
        async with asyncio.timeout(10):
            while not scene.sim.requests:  # noqa: ASYNC110 - the journal has no event to wait for
                await asyncio.sleep(0.005)
        await scene.set_age(3_600)

    end, _ = await asyncio.gather(worker.carrier.carry(first), move_clocks())
    assert end is End.SETTLED
    assert await worker.carrier.carry(second) is End.SETTLED
    assert await scene.alarms() == 0
    assert scene.lookups <= 1
    await scene.audit()


async def test_a_key_that_was_not_executed_waits_too(scene: Scene) -> None:
    """429 and clocks apart: the resend needs no lookup otherwise, but now there is one, and it says wait."""
    await scene.plan()
    scene.fault("error", status=429, operation=CREATE, times=1)
    await scene.set_age(0, ledger_ahead_seconds=AHEAD_SECONDS)
    assert list((await scene.work()).values()) == [End.DEFERRED]
    assert (await scene.charge()).state is State.CREATING
    assert scene.wire == ["create v1"]
    assert await scene.alarms() == 1


async def test_a_cancel_does_not_wait_for_the_clocks(scene: Scene) -> None:
    """It moves no money at any time of the day."""
    worker = scene.worker()
    await scene.prepare(worker)
    await scene.set_age(0, ledger_ahead_seconds=AHEAD_SECONDS)
    worker.settler._skew.observe(AHEAD_SECONDS, began_seconds=START)
    await scene.cancel()
    assert list((await worker.work()).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.CANCELED
