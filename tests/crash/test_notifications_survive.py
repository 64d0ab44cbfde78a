import json
import socket

import asyncpg
import pytest

from activities.crash_points import CrashPoint
from tests.activities.receivers import web_receiver
from tests.activities.test_notifiers import SECRET, signature_of
from tests.crash.world import World

LINES = 12


def notify(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Let the workers of this test tell a webhook."""
    monkeypatch.setenv("CHARGEONCE_NOTIFY_WEBHOOK_URL", url)
    monkeypatch.setenv("CHARGEONCE_NOTIFY_WEBHOOK_SECRET", SECRET)


async def outbox(world: World) -> list[tuple[str, str]]:
    """Return kind and state of what was to be told."""
    connection = await asyncpg.connect(world.database.owner_url)
    try:
        rows = await connection.fetch("SELECT kind, state FROM notifications ORDER BY notification_id")
        return [(row["kind"], row["state"]) for row in rows]
    finally:
        await connection.close()


async def test_a_worker_killed_between_close_and_delivery(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The close is committed and nobody knows: the next worker tells, and the third try is taken."""
    async with web_receiver(503, 503) as receiver:
        notify(monkeypatch, f"{receiver.url}/hook")
        source = world.write_source(LINES)
        dying = await world.start_worker(crash_at=CrashPoint.CLOSE_AFTER_COMMIT)
        handle = await world.start_run(source)
        await world.wait_for_death(dying)
        assert await outbox(world) == [("run_closed", "waiting")]
        assert receiver.deliveries == []

        await world.start_worker()
        report = await world.finish(handle)
        assert report.phase == "closed"
        await receiver.until(3)

    bodies = [json.loads(one.body) for one in receiver.deliveries]
    assert {body["id"] for body in bodies} == {f"{world.run_id}/run_closed/closed"}
    assert bodies[0]["counts"] == {name: count for name, count in report.counts.items() if count}
    assert bodies[0]["double_charge_check"] == "clean"
    assert "cus_" not in receiver.deliveries[0].body.decode()
    assert all(signature_of(one.headers["Chargeonce-Signature"], one.body) for one in receiver.deliveries)


async def test_a_run_closes_while_nobody_can_be_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The destination is down for good: the run ends as always, and what was not told stays on record."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        notify(monkeypatch, f"http://127.0.0.1:{bound.getsockname()[1]}/hush-hush")
        handle = await world.start_run(world.write_source(LINES))
        await world.start_worker()
        assert (await world.finish(handle)).phase == "closed"
        [(kind, state)] = await outbox(world)
    assert (kind, state) in {("run_closed", "waiting"), ("run_closed", "given_up")}
    assert "hush-hush" not in world.logs()
