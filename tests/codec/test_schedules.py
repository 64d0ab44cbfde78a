"""Schedules whose orders are encrypted: made, compared and changed as others are."""

from collections.abc import AsyncIterator

import pytest

from deploy.temporal_server import TemporalServer
from tests.codec.sealed import connect
from tests.schedules.test_sync import Calendar
from worker.payload_codec import PayloadUnreadable
from worker.schedules.temporal_schedules import need_schedule, schedule_id_of


@pytest.fixture
async def calendar(temporal_server: TemporalServer, task_queue: str) -> AsyncIterator[Calendar]:
    """One schedule, made under a key that is replaced later."""
    made = Calendar(await connect(temporal_server.address, "old"), task_queue)
    assert [one.change for one in await made.sync({"name": "a"})] == ["created"]
    yield made
    await made.client.get_schedule_handle(schedule_id_of(made.name("a"))).delete()


async def test_a_schedule_is_the_same_through_the_codec(
    calendar: Calendar, temporal_server: TemporalServer, task_queue: str
) -> None:
    """What is as it is to be is left alone, what differs is told, and Temporal reads nothing of the order."""
    assert [one.change for one in await calendar.sync({"name": "a"})] == ["unchanged"]
    handle = await need_schedule(calendar.client, calendar.name("a"), task_queue)
    await handle.pause(note="prices change")
    [synced] = await calendar.sync({"name": "a", "source": "new/{period}.csv"})
    assert (synced.change, synced.differed, synced.paused) == ("updated", ("source",), True)
    stranger = await connect(temporal_server.address)
    described = await stranger.get_schedule_handle(handle.id).describe()
    raw = described.raw_description.SerializeToString()
    assert b"{period}.csv" not in raw
    assert f"acct_{calendar.name('a')}".encode() not in raw


async def test_a_schedule_needs_the_key_that_it_was_made_under(
    calendar: Calendar, temporal_server: TemporalServer
) -> None:
    """Also after the rotation, whatever has been changed since; without it the key is named."""
    made = calendar.client
    calendar.client = await connect(temporal_server.address, "new", "old")
    [synced] = await calendar.sync({"name": "a", "source": "new/{period}.csv"})
    assert (synced.change, synced.differed) == ("updated", ("source",))
    calendar.client = await connect(temporal_server.address, "new")
    with pytest.raises(PayloadUnreadable, match="the key 'old', which is not configured here"):
        await calendar.sync({"name": "a"})
    calendar.client = made
