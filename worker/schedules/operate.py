"""`chargeonce schedule list`, `pause` and `resume`: the schedules as Temporal has them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from temporalio.client import Client, ScheduleActionExecutionStartWorkflow, ScheduleDescription

from worker.console_output import Output, table
from worker.environment import load_settings
from worker.reasons import read_reason
from worker.schedules.temporal_schedules import find_schedule, need_schedule, order_of, our_schedules
from worker.temporal_client import connect_temporal
from worker.whoami import who as whoever_types
from workflows.domain.counted import counted
from workflows.launch_contracts import LaunchOrder
from workflows.launch_reconcile_contracts import ReconcileOrder

if TYPE_CHECKING:
    from rich.console import RenderableType

_STARTS = {LaunchOrder: "run", ReconcileOrder: "reconciliation"}


async def list_schedules(output: Output) -> None:
    """Print every schedule of this task queue: what it starts, and when it fires next."""
    settings = load_settings()
    client = await connect_temporal()
    found = []
    async for name in our_schedules(client, settings.task_queue):
        description = await find_schedule(client, name)
        if description is not None:  # gone since it was listed
            found.append(await _entry(client, name, description))
    found.sort(key=lambda one: str(one["name"]))
    output.result({"schedules": found}, lambda: _render(found))


async def pause_schedule(output: Output, name: str, *, who: str | None, reason: str) -> None:
    """Let a schedule fire no more until it is resumed. What is missed meanwhile is the sweep's to find."""
    handle = await need_schedule(await connect_temporal(), name, load_settings().task_queue)
    note = f"paused by {who or whoever_types()}: {read_reason(reason)}"
    await handle.pause(note=note)
    output.result({"schedule": name, "paused": True, "note": note}, lambda: [f"{name}: {note}"])


async def resume_schedule(output: Output, name: str, *, who: str | None, reason: str) -> None:
    """Let a paused schedule fire again, from now on."""
    handle = await need_schedule(await connect_temporal(), name, load_settings().task_queue)
    note = f"resumed by {who or whoever_types()}: {read_reason(reason)}"
    await handle.unpause(note=note)

    def render() -> Iterable["RenderableType"]:
        yield f"{name}: {note}"
        yield "what was missed while it was paused: chargeonce schedule sweep"

    output.result({"schedule": name, "paused": False, "note": note}, render)


async def _entry(client: Client, name: str, found: ScheduleDescription) -> dict[str, Any]:
    order = await order_of(client, found)
    state, info = found.schedule.state, found.info
    latest = info.recent_actions[-1] if info.recent_actions else None
    started = None if latest is None else latest.action
    coming = info.next_action_times
    return {
        "name": name,
        "starts": None if order is None else _STARTS[type(order)],
        "account": None if order is None else order.account,
        "every": None if order is None else order.calendar.every.value,
        "zone": None if order is None else order.calendar.zone,
        "source": order.source if isinstance(order, LaunchOrder) else None,
        "look_back_days": order.look_back_days if isinstance(order, ReconcileOrder) else None,
        "repair": order.repair if isinstance(order, ReconcileOrder) else None,
        "paused": state.paused,
        "note": state.note,
        "next": None if state.paused or not coming else coming[0],
        "last": None if latest is None else latest.scheduled_at,
        "last_launch": started.workflow_id
        if isinstance(started, ScheduleActionExecutionStartWorkflow)
        else None,
        "missed_catch_up": info.num_actions_missed_catchup_window,
    }


def _render(found: Sequence[Mapping[str, Any]]) -> Iterable["RenderableType"]:
    if not found:
        yield "no schedules at Temporal yet: chargeonce schedule sync --help"
        return
    rows = [
        (
            one["name"],
            _describe(one),
            one["account"],
            one["every"],
            one["zone"],
            f"paused ({one['note']})" if one["paused"] else _when(one["next"]),
            _when(one["last"]),
        )
        for one in found
    ]
    yield table(
        ("schedule", "starts", "account", "every", "zone", "next firing (UTC)", "last firing (UTC)"), rows
    )


def _describe(one: Mapping[str, Any]) -> str:
    if one["look_back_days"] is None:
        return one["starts"] or ""
    repairs = "repairs what moves no money" if one["repair"] else "repairs nothing"
    return f"{one['starts']} ({counted(one['look_back_days'], 'day')} back, {repairs})"


def _when(at: Any) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"
