"""`chargeonce schedule sync`: make Temporal's schedules what the file says, and say what that changed."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from temporalio.client import Client, ScheduleAlreadyRunningError, ScheduleUpdate, ScheduleUpdateInput

from worker.console_output import Output, table
from worker.environment import load_settings
from worker.schedules.schedule_file import read_file
from worker.schedules.temporal_schedules import (
    MARK,
    Desired,
    Entry,
    desired_of,
    differences,
    find_schedule,
    order_of,
    our_schedules,
    refuse_stranger,
    schedule_id_of,
)
from worker.settings import Settings
from worker.temporal_client import connect_temporal
from workflows.domain.counted import counted

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True)
class Synced:
    """What became of one schedule: created, updated, unchanged or removed, and in what it had differed."""

    name: str
    change: str
    differed: tuple[str, ...] = ()
    paused: bool = False


async def sync_schedules(output: Output, path: Path) -> None:
    """Make Temporal's schedules what the file says, and print what changed.

    Raises:
        InvalidInput: The file is wrong; nothing was changed.
        RefusedToStart: A schedule of such a name was made by somebody else. Those before it in the file are
            as they are to be; do it again once that is out of the way.
    """
    file = read_file(path)
    settings = load_settings()
    synced = await sync(await connect_temporal(), [*file.schedules, *file.reconciles], settings)
    document = {"schedules": [asdict(one) for one in synced], "changed": _changed(synced)}
    output.result(document, lambda: _render(synced))


async def sync(client: Client, entries: Sequence[Entry], settings: Settings) -> list[Synced]:
    """Create, update and remove schedules of this task queue. Doing it again changes nothing.

    Whether a schedule is paused is left as it is: a pause is a person's decision, and no file's. Raises as
    `sync_schedules`.
    """
    synced = [await _sync_one(client, desired_of(entry, settings), settings) for entry in entries]
    wanted = {entry.name for entry in entries}
    async for name in our_schedules(client, settings.task_queue):
        if name not in wanted:
            await client.get_schedule_handle(schedule_id_of(name)).delete()
            synced.append(Synced(name, "removed"))
    return synced


async def _sync_one(client: Client, desired: Desired, settings: Settings) -> Synced:
    found = await find_schedule(client, desired.name)
    if found is None:
        try:
            await client.create_schedule(
                desired.schedule_id, desired.schedule, memo={MARK: settings.task_queue}
            )
            return Synced(desired.name, "created")
        except ScheduleAlreadyRunningError:  # somebody else syncs as well
            return await _sync_one(client, desired, settings)
    await refuse_stranger(found, settings.task_queue)
    differed = tuple(differences(desired, await order_of(client, found), found))
    paused = found.schedule.state.paused
    if not differed:
        return Synced(desired.name, "unchanged", paused=paused)

    def replace(update: ScheduleUpdateInput) -> ScheduleUpdate:
        desired.schedule.state = update.description.schedule.state
        return ScheduleUpdate(desired.schedule)

    await client.get_schedule_handle(desired.schedule_id).update(replace)
    return Synced(desired.name, "updated", differed, paused=paused)


def _changed(synced: Sequence[Synced]) -> int:
    return sum(one.change != "unchanged" for one in synced)


def _render(synced: Sequence[Synced]) -> Iterable["RenderableType"]:
    if synced:
        rows = [
            (one.name, one.change, ", ".join(one.differed), "paused: it stays so" if one.paused else "")
            for one in synced
        ]
        yield table(("schedule", "", "differed in", ""), rows)
    yield f"{_changed(synced)} of {counted(len(synced), 'schedule')} changed"
