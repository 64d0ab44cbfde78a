import json

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from tests.schedules.record_histories import FOLDER
from tests.workflows.stage import sandbox
from workflows.launch import LaunchRun

NAMES = ("duplicate", "lost", "refused", "started")


def read(name: str) -> str:
    """Return a recorded history."""
    return (FOLDER / f"{name}.json").read_text(encoding="utf-8")


async def replay(text: str) -> None:
    """Replay as the project's worker would; raises where it does not fit."""
    replayer = Replayer(
        workflows=[LaunchRun], workflow_runner=sandbox(), data_converter=pydantic_data_converter
    )
    await replayer.replay_workflow(WorkflowHistory.from_json("launch/recorded", text))


@pytest.mark.parametrize("name", NAMES)
async def test_a_recorded_launcher_replays(name: str) -> None:
    """A launcher that began under an earlier version, and waits for its source, goes on under this one."""
    await replay(read(name))
    assert {path.stem for path in FOLDER.glob("*.json")} == set(NAMES)


async def test_a_launcher_of_another_shape_would_be_noticed() -> None:
    """A history whose run has another id does not replay."""
    changed = read("started").replace(
        '"activityType": {\n     "name": "prepare_launch"', '"activityType": {\n     "name": "other"'
    )
    assert json.loads(changed) != json.loads(read("started"))
    with pytest.raises(NondeterminismError):
        await replay(changed)
