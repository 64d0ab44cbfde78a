"""The loop that works through the inbox: woken by commits, sweeping without, outliving what breaks."""

import asyncio

import pytest

from activities.ledger.inbox import EventState
from activities.merge import Look, Merger, Subject
from tests.activities.scene import CONFIRM, Scene
from tests.web.mailroom import Mailroom
from worker import inbox_loop
from worker.inbox_loop import working_inbox

NEVER_SECONDS = 3_600.0
# Asked as the workers' role, which sees what its own connections do, and nobody else's.
LISTENERS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
OPEN = "SELECT count(*) FROM inbox_events WHERE state = 'waiting'"


async def lose_the_confirm(scene: Scene) -> None:
    """Leave one charge in `confirming`, paid at Stripe, its answer lost."""
    worker = scene.worker()
    await worker.transmit(await worker.intend(await scene.prepare(worker), CONFIRM))


async def wait_for(scene: Scene, query: str, wanted: int) -> None:
    """Return once a query says so."""
    async with asyncio.timeout(20):
        while await scene.pool.fetchval(query) != wanted:  # noqa: ASYNC110 - nobody signals
            await asyncio.sleep(0.01)


async def test_a_commit_wakes_the_loop(scene: Scene, mail: Mailroom) -> None:
    """Without any sweep: what the receiver has committed is worked through at once."""
    await lose_the_confirm(scene)
    async with working_inbox(mail.worker(), scene.database.app_url, sweep_seconds=NEVER_SECONDS):
        await wait_for(scene, f"SELECT count(*) FROM ({LISTENERS}) AS l", 1)
        await mail.deliver(*mail.bodies())
        await wait_for(scene, OPEN, 0)
    assert (await scene.charge()).state == "succeeded"


async def test_a_replay_wakes_the_loop(scene: Scene, mail: Mailroom) -> None:
    """Whoever lets events be tried again need not wait for a sweep."""
    await lose_the_confirm(scene)
    await mail.deliver(*mail.bodies())
    await mail.work()
    ended = await mail.inbox.newest(states=[EventState.DONE], limit=10)
    async with working_inbox(mail.worker(), scene.database.app_url, sweep_seconds=NEVER_SECONDS):
        await wait_for(scene, f"SELECT count(*) FROM ({LISTENERS}) AS l", 1)
        await mail.inbox.replay([one["event_id"] for one in ended])
        await wait_for(scene, OPEN, 0)


async def test_without_wake_ups_it_sweeps(
    scene: Scene, mail: Mailroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener that never comes up costs time and loses nothing."""

    async def never(*_arguments: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(inbox_loop, "_listen", never)
    await lose_the_confirm(scene)
    async with working_inbox(mail.worker(), scene.database.app_url, sweep_seconds=0.05):
        await mail.deliver(*mail.bodies())
        await wait_for(scene, OPEN, 0)
    assert (await scene.charge()).state == "succeeded"


async def test_a_listener_that_was_ended_comes_back(scene: Scene, mail: Mailroom) -> None:
    """Its connection is ended by the server: another one listens in its place."""
    await lose_the_confirm(scene)
    async with working_inbox(mail.worker(), scene.database.app_url, sweep_seconds=0.5):
        await wait_for(scene, f"SELECT count(*) FROM ({LISTENERS}) AS l", 1)
        [first] = [row["pid"] for row in await scene.pool.fetch(LISTENERS)]
        await scene.pool.execute("SELECT pg_terminate_backend($1)", first)
        await wait_for(scene, f"SELECT count(*) FROM ({LISTENERS} AND pid <> {first}) AS l", 1)
        await mail.deliver(*mail.bodies())
        await wait_for(scene, OPEN, 0)


async def test_a_pass_that_breaks_is_tried_again(
    scene: Scene, mail: Mailroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is raised is told in one line, and the events are taken again."""
    monkeypatch.setattr(inbox_loop, "PAUSE_SECONDS_MAX", 0.05)
    await lose_the_confirm(scene)
    worker = mail.worker()
    claim, broken = worker.inbox.claim, 3

    async def break_down(**options: object) -> object:
        nonlocal broken
        if broken:
            broken -= 1
            raise ConnectionResetError
        return await claim(**options)  # type: ignore[arg-type]

    monkeypatch.setattr(worker.inbox, "claim", break_down)
    await mail.deliver(*mail.bodies())
    async with working_inbox(worker, scene.database.app_url, sweep_seconds=0.05):
        await wait_for(scene, OPEN, 0)
    assert broken == 0
    assert (await scene.charge()).state == "succeeded"


async def test_a_process_that_stops_gives_its_leases_back(
    scene: Scene, mail: Mailroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deploy in the middle of a pass: the next process takes the same events at once."""
    await lose_the_confirm(scene)
    worker = mail.worker()
    looking = asyncio.Event()

    async def look_for_ever(_merger: Merger, _subject: Subject) -> Look:
        looking.set()
        await asyncio.Event().wait()
        raise AssertionError

    with monkeypatch.context() as stuck:
        stuck.setattr(Merger, "look", look_for_ever)
        await mail.deliver(*mail.bodies())
        async with working_inbox(worker, scene.database.app_url, sweep_seconds=0.05):
            await looking.wait()
    assert await mail.work() == 1
    assert (await scene.charge()).state == "succeeded"


async def test_a_process_without_sweeps_leaves_the_inbox_alone(scene: Scene, mail: Mailroom) -> None:
    """0 seconds: it is worked through elsewhere."""
    await lose_the_confirm(scene)
    async with working_inbox(mail.worker(), scene.database.app_url, sweep_seconds=0):
        await mail.deliver(*mail.bodies())
        assert await scene.pool.fetchval(f"SELECT count(*) FROM ({LISTENERS}) AS l") == 0
    assert await mail.states() == {"waiting": 3}
