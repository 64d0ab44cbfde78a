import json
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from tests.workflows.record_histories import FOLDER, RECORDINGS
from tests.workflows.stage import count, count_scheduled, sandbox
from workflows.billing_run import BillingRun

COMPLETED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED
CONTINUED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW
UPDATED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED
PATHS = sorted(FOLDER.glob("*.json"))
CONTINUATIONS = sorted(path.stem for path in FOLDER.glob("continued_*.json"))


def read(name: str) -> dict[str, Any]:
    """Return a recorded history as JSON."""
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return content


def parse(history: dict[str, Any]) -> WorkflowHistory:
    """Return a history as the SDK holds it. The id is the run's, since the run is told by it."""
    return WorkflowHistory.from_json("billing-run/acct_fake/2031-03", history)


async def replay(history: WorkflowHistory) -> None:
    """Replay with the converter and the sandbox of the project's worker; raises where it does not fit."""
    replayer = Replayer(
        workflows=[BillingRun], workflow_runner=sandbox(), data_converter=pydantic_data_converter
    )
    await replayer.replay_workflow(history)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
async def test_a_recorded_run_replays(path: Any) -> None:
    """A run that began under an earlier version of the workflow would go on under this one."""
    await replay(parse(read(path.stem)))


def test_every_shape_is_recorded() -> None:
    """Each recording has its file, continue-as-new has each of its executions, and no file is left over."""
    assert len(CONTINUATIONS) >= 3
    assert {path.stem for path in PATHS} == {*RECORDINGS, *CONTINUATIONS}


def _attempts(history: WorkflowHistory) -> set[int]:
    return {event.activity_task_started_event_attributes.attempt for event in history.events}


SHAPES: dict[str, Callable[[WorkflowHistory], bool]] = {
    "happy": lambda history: count(history, UPDATED) == 0 and 2 not in _attempts(history),
    "halted": lambda history: count(history, UPDATED) == 1,
    "settled_after_tick": lambda history: (
        count(history, UPDATED) == 2 and count(history, EventType.EVENT_TYPE_TIMER_CANCELED) == 2
    ),
    "worker_lost": lambda history: (
        2 in _attempts(history) and count(history, EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT) >= 1
    ),
    "refused": lambda history: count(history, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED) == 1,
    "failed": lambda history: count(history, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED) == 2,
    "decided": lambda history: (
        count(history, UPDATED) == 5
        and count_scheduled(history, "read_canary") >= 1
        and count_scheduled(history, "raise_cap") == 1
    ),
    "silence": lambda history: count_scheduled(history, "close_breaker") == 2,
    "canceled": lambda history: count_scheduled(history, "cancel_run") == 1,
    "recovered": lambda history: count_scheduled(history, "charge_slice") == 2,
    "retried": lambda history: (
        count_scheduled(history, "follow_up_due") == 4 and count_scheduled(history, "settle_due") == 1
    ),
    "two_hundred_lines": lambda history: count_scheduled(history, "charge_slice") == 21,
}


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_history_has_the_shape_of_its_name(name: str) -> None:
    """A recording that missed its moment (no tick, no lost worker) would prove nothing."""
    history = parse(read(name))
    assert history.events[-1].event_type == COMPLETED
    assert SHAPES[name](history)


def test_every_execution_but_the_last_continues_as_new() -> None:
    """The recorded executions of the long run belong to one chain."""
    ends = [parse(read(name)).events[-1].event_type for name in CONTINUATIONS]
    assert ends == [CONTINUED] * (len(ends) - 1) + [COMPLETED]


@pytest.mark.parametrize(
    ("name", "activity_name"),
    [("happy", "begin_settling"), ("halted", "charge_slice"), ("settled_after_tick", "settle_due")],
)
async def test_a_change_of_commands_is_noticed(name: str, activity_name: str) -> None:
    """A history that the workflow would not have written fails to replay: the files above guard something."""
    history = read(name)
    scheduled = [
        event["activityTaskScheduledEventAttributes"]["activityType"]
        for event in history["events"]
        if "activityTaskScheduledEventAttributes" in event
    ]
    next(kind for kind in scheduled if kind["name"] == activity_name)["name"] = "notify_customers"
    with pytest.raises(NondeterminismError):
        await replay(parse(history))


async def test_a_missing_step_is_noticed() -> None:
    """A run that closed without having been settled is no history of this workflow."""
    happy = read("happy")
    names = [
        event.get("activityTaskScheduledEventAttributes", {}).get("activityType", {}).get("name")
        for event in happy["events"]
    ]
    cut = names.index("begin_settling")
    happy["events"] = [*happy["events"][:cut], _completion(happy["events"], event_id=cut + 1)]
    with pytest.raises(NondeterminismError):
        await replay(parse(happy))


def _completion(events: list[dict[str, Any]], *, event_id: int) -> dict[str, Any]:
    return {**events[-1], "eventId": str(event_id)}
