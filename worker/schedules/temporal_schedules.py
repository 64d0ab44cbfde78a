"""The schedules of this project at Temporal: which are ours, what each should be, and what each is."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from temporalio.client import (
    Client,
    Schedule,
    ScheduleAction,
    ScheduleActionStartWorkflow,
    ScheduleDescription,
    ScheduleHandle,
    ScheduleSpec,
    ScheduleState,
)
from temporalio.service import RPCError, RPCStatusCode

from worker.schedules.reconcile_entry import ReconcileEntry
from worker.schedules.schedule_file import ScheduleEntry
from worker.schedules.temporal_spec import policy_of, spec_of
from worker.settings import Settings
from workflows.domain.errors import RefusedToStart
from workflows.launch import LaunchRun
from workflows.launch_contracts import LaunchOrder
from workflows.launch_reconcile import LaunchReconcile
from workflows.launch_reconcile_contracts import ReconcileOrder

PREFIX = "chargeonce/"
MARK = "chargeonce_task_queue"  # a memo, which nobody can change later: whose workers the schedule is for
Entry = ScheduleEntry | ReconcileEntry
Order = LaunchOrder | ReconcileOrder
_ORDERS: dict[str, type[LaunchOrder] | type[ReconcileOrder]] = {
    "LaunchRun": LaunchOrder,
    "LaunchReconcile": ReconcileOrder,
}
"""What each launcher is handed."""


@dataclass(frozen=True, slots=True)
class Desired:
    """What a schedule of the file is to be at Temporal."""

    name: str
    order: Order
    schedule: Schedule

    @property
    def schedule_id(self) -> str:
        """The id at Temporal."""
        return schedule_id_of(self.name)


def schedule_id_of(name: str) -> str:
    """Return the id at Temporal of the schedule of that name."""
    return f"{PREFIX}{name}"


def desired_of(entry: Entry, settings: Settings) -> Desired:
    """Return what an entry of the file is to be at Temporal, not paused."""
    order: Order
    if isinstance(entry, ReconcileEntry):
        order = entry.order(timing=settings.timing)
        action = ScheduleActionStartWorkflow(
            LaunchReconcile.run, order, id=f"launch-reconcile/{entry.name}", task_queue=settings.task_queue
        )
    else:
        order = entry.order(timing=settings.timing, slices_at_once=settings.slices_at_once)
        action = ScheduleActionStartWorkflow(
            LaunchRun.run, order, id=f"launch/{entry.name}", task_queue=settings.task_queue
        )
    schedule = Schedule(
        action=action,
        spec=spec_of(order.calendar),
        policy=policy_of(entry.catch_up_window()),
        state=ScheduleState(),
    )
    return Desired(entry.name, order, schedule)


async def find_schedule(client: Client, name: str) -> ScheduleDescription | None:
    """Return the schedule of that name as it is, or None where there is none."""
    try:
        return await client.get_schedule_handle(schedule_id_of(name)).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


async def refuse_stranger(found: ScheduleDescription, task_queue: str) -> None:
    """Raise RefusedToStart where this project, or this task queue of it, did not make a schedule."""
    mark = (await found.memo()).get(MARK)
    if mark != task_queue:
        whose = f"for the task queue {mark}" if mark else "by somebody else"
        raise RefusedToStart(f"the schedule {found.id} was made {whose}: it is left as it is")


async def need_schedule(client: Client, name: str, task_queue: str) -> ScheduleHandle:
    """Return the handle of a schedule of ours. Raises RefusedToStart where there is none of that name."""
    found = await find_schedule(client, name)
    if found is None:
        raise RefusedToStart(f"there is no schedule {name!r} at Temporal: see `chargeonce schedule list`")
    await refuse_stranger(found, task_queue)
    return client.get_schedule_handle(found.id)


async def our_schedules(client: Client, task_queue: str) -> AsyncIterator[str]:
    """Yield the names of the schedules that were made for this task queue, as Temporal's lists know them.

    A list may lag some seconds behind; what it does not show yet is removed by the next sync.
    """
    async for listed in await client.list_schedules():
        if listed.id.startswith(PREFIX) and (await listed.memo()).get(MARK) == task_queue:
            yield listed.id.removeprefix(PREFIX)


async def order_of(client: Client, found: ScheduleDescription) -> Order | None:
    """Return what a schedule hands to its launcher, or None where that can't be read."""
    action = found.schedule.action
    kind = _ORDERS.get(action.workflow) if isinstance(action, ScheduleActionStartWorkflow) else None
    if kind is None or not isinstance(action, ScheduleActionStartWorkflow):
        return None
    try:
        [order] = await client.data_converter.decode(list(action.args), [kind])
    except Exception:  # noqa: BLE001 - made by another version, or by hand: then it is simply another one
        return None
    return order if isinstance(order, kind) else None


def differences(desired: Desired, order: Order | None, found: ScheduleDescription) -> Iterator[str]:
    """Yield in what a schedule differs from what it is to be, in words of the file where it has some."""
    if type(order) is not type(desired.order):
        yield "what it starts"
    elif order != desired.order:
        ours, theirs = desired.order.model_dump(), order.model_dump()
        yield from (name for name in ours if ours[name] != theirs[name])
    if _starts_as(found.schedule.action) != _starts_as(desired.schedule.action):
        yield "where it starts"
    if not _same_times(found.schedule.spec, desired.schedule.spec):
        yield "times"
    if found.schedule.policy != desired.schedule.policy:
        yield "overlap or catch-up"


def _starts_as(action: ScheduleAction) -> tuple[str, str] | None:
    return (action.id, action.task_queue) if isinstance(action, ScheduleActionStartWorkflow) else None


def _same_times(found: ScheduleSpec, wanted: ScheduleSpec) -> bool:
    return (
        list(found.calendars) == list(wanted.calendars)
        and list(found.intervals) == list(wanted.intervals)
        and list(found.skip) == list(wanted.skip)
        and not list(found.cron_expressions)
        and found.jitter is None
        and (found.start_at, found.end_at) == (wanted.start_at, wanted.end_at)
        and found.time_zone_name == wanted.time_zone_name
    )
