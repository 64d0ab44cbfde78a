import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.contrib.pydantic import pydantic_data_converter

from deploy.temporal_server import TemporalServer
from worker.schedules.schedule_file import parse_file, parse_schedules
from worker.schedules.sync import Synced, sync
from worker.schedules.temporal_schedules import need_schedule, our_schedules, schedule_id_of
from worker.settings import Settings
from workflows.domain.errors import RefusedToStart

LISTED_SECONDS = 20.0


class Calendar:
    """A file of schedules and a Temporal to hold it against, with names that belong to this test alone."""

    def __init__(self, client: Client, task_queue: str) -> None:
        self.client = client
        self.settings = Settings(database_url="postgresql://nobody@localhost/none", task_queue=task_queue)
        self.prefix = f"s{uuid.uuid4().hex[:8]}"

    def name(self, short: str) -> str:
        """Return a name that no other test has."""
        return f"{self.prefix}-{short}"

    async def sync(self, *entries: dict[str, Any]) -> list[Synced]:
        """Make Temporal's schedules these."""
        least = {
            "zone": "Europe/Berlin", "every": "month", "since": "2031-01", "source": "{period}.csv",
        }  # fmt: skip
        rows = [
            least | {"account": f"acct_{entry['name']}"} | entry | {"name": self.name(entry["name"])}
            for entry in entries
        ]
        parsed = parse_schedules({"schedule": rows}, Path("/billing"), "schedules.toml")
        return await sync(self.client, parsed, self.settings)

    async def sync_reconciles(self, *entries: dict[str, Any]) -> list[Synced]:
        """Make Temporal's schedules these comparisons."""
        least = {"zone": "Europe/Berlin", "account": "acct_1"}
        rows = [least | entry | {"name": self.name(entry["name"])} for entry in entries]
        parsed = parse_file({"reconcile": rows}, Path("/billing"), "schedules.toml")
        return await sync(self.client, parsed.reconciles, self.settings)

    async def listed_once(self, names: Sequence[str]) -> None:
        """Wait until Temporal's list shows exactly these, since it lags behind."""
        async with asyncio.timeout(LISTED_SECONDS):
            while True:
                found = {name async for name in our_schedules(self.client, self.settings.task_queue)}
                if found == {self.name(name) for name in names}:
                    return
                await asyncio.sleep(0.1)


@pytest.fixture
async def calendar(temporal_server: TemporalServer, task_queue: str) -> AsyncIterator[Calendar]:
    """Nothing is scheduled yet."""
    client = await Client.connect(temporal_server.address, data_converter=pydantic_data_converter)
    made = Calendar(client, task_queue)
    yield made
    async for name in our_schedules(client, task_queue):
        await client.get_schedule_handle(schedule_id_of(name)).delete()


async def test_a_second_sync_changes_nothing(calendar: Calendar) -> None:
    """Schedules of every kind are created once, and found as they are to be ever after."""
    entries: list[dict[str, Any]] = [
        {"name": "month", "anchor": "last", "at": "02:30"},
        {"name": "quarter", "every": "quarter", "since": "2031-Q1", "until": "2040-Q4", "days_after": 2},
        {"name": "week", "every": "week", "since": "2031-W02", "anchor": "wed"},
        {"name": "day", "every": "day", "since": "2031-01-01", "at": "02:30", "approve_within": {"usd": "9"}},
    ]  # fmt: skip
    assert {one.change for one in await calendar.sync(*entries)} == {"created"}
    assert {(one.change, one.differed) for one in await calendar.sync(*entries)} == {("unchanged", ())}


async def test_what_differs_is_updated_and_told(calendar: Calendar) -> None:
    """Each change of the file is made at Temporal, by its name, and the other schedules are left alone."""
    await calendar.sync({"name": "a"}, {"name": "b"})
    [a, b] = await calendar.sync({"name": "a", "at": "07:00", "source": "new/{period}.csv"}, {"name": "b"})
    assert (a.change, set(a.differed)) == ("updated", {"calendar", "source", "times"})
    assert b.change == "unchanged"
    [a, b] = await calendar.sync(
        {"name": "a", "at": "07:00", "source": "new/{period}.csv", "catch_up": "1d"}, {"name": "b"}
    )
    assert (a.change, a.differed) == ("updated", ("overlap or catch-up",))


async def test_a_comparison_is_synced_as_a_run_is(calendar: Calendar) -> None:
    """It is created once, what differs is told by its name, and a run of its name replaces it."""
    assert [one.change for one in await calendar.sync_reconciles({"name": "nightly"})] == ["created"]
    assert [one.change for one in await calendar.sync_reconciles({"name": "nightly"})] == ["unchanged"]
    [synced] = await calendar.sync_reconciles({"name": "nightly", "look_back_days": 30, "repair": True})
    assert (synced.change, set(synced.differed)) == ("updated", {"look_back_days", "repair"})
    [synced] = await calendar.sync({"name": "nightly"})
    assert (synced.change, synced.differed[:2]) == ("updated", ("what it starts", "where it starts"))


async def test_a_pause_survives_a_sync(calendar: Calendar) -> None:
    """Whoever paused a schedule resumes it: neither a sync that changes nothing nor one that does it."""
    await calendar.sync({"name": "a"})
    handle = await need_schedule(calendar.client, calendar.name("a"), calendar.settings.task_queue)
    await handle.pause(note="prices change")
    for entry in ({"name": "a"}, {"name": "a", "at": "07:00"}):
        [synced] = await calendar.sync(entry)
        assert synced.paused
        state = (await handle.describe()).schedule.state
        assert (state.paused, state.note) == (True, "prices change")


async def test_what_somebody_changed_by_hand_is_changed_back(calendar: Calendar) -> None:
    """An edit in Temporal's web page is drift: the file says what is to be."""
    await calendar.sync({"name": "a"})
    handle = await need_schedule(calendar.client, calendar.name("a"), calendar.settings.task_queue)

    def meddle(update: ScheduleUpdateInput) -> ScheduleUpdate:
        update.description.schedule.spec = ScheduleSpec(cron_expressions=["0 12 * * *"])
        return ScheduleUpdate(update.description.schedule)

    await handle.update(meddle)
    [synced] = await calendar.sync({"name": "a"})
    assert (synced.change, synced.differed) == ("updated", ("times",))
    assert (await calendar.sync({"name": "a"}))[0].change == "unchanged"


async def test_only_our_own_schedules_are_removed(calendar: Calendar, task_queue: str) -> None:
    """What left the file is removed; what others made is not, whatever its name, nor is it changed."""
    await calendar.sync({"name": "a"}, {"name": "b"})
    stranger = schedule_id_of(calendar.name("stranger"))
    action = ScheduleActionStartWorkflow("Nothing", id="nothing", task_queue=task_queue)
    await calendar.client.create_schedule(stranger, Schedule(action=action, spec=ScheduleSpec()))
    await calendar.listed_once(["a", "b"])
    assert [(one.name, one.change) for one in await calendar.sync({"name": "b"})] == [
        (calendar.name("b"), "unchanged"),
        (calendar.name("a"), "removed"),
    ]
    await calendar.listed_once(["b"])
    with pytest.raises(RefusedToStart, match="was made by somebody else"):
        await calendar.sync({"name": "b"}, {"name": "stranger"})
    await calendar.client.get_schedule_handle(stranger).delete()


async def test_two_task_queues_do_not_share_a_schedule(calendar: Calendar) -> None:
    """A schedule starts what its own task queue's workers do: another installation does not take it."""
    await calendar.sync({"name": "a"})
    other = Calendar(calendar.client, "another-queue")
    other.prefix = calendar.prefix
    with pytest.raises(RefusedToStart, match="was made for the task queue"):
        await other.sync({"name": "a"})
    assert await other.sync() == []
    with pytest.raises(RefusedToStart, match="there is no schedule"):
        await need_schedule(calendar.client, calendar.name("nobody"), calendar.settings.task_queue)
