"""Histories as files, which later versions of the workflows have to replay."""

import json
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from temporalio.client import WorkflowHistory

from deploy.temporal_server import TemporalServer
from tests.conftest import FAST_CONTINUE_AS_NEW

RecordAll = Callable[[str], Awaitable[Mapping[str, WorkflowHistory]]]
"""Plays everything on the Temporal server at an address, and returns the histories by name."""


async def write_recordings(folder: Path, record_all: RecordAll) -> None:
    """Record on a Temporal server of its own, and write each history as NAME.json into a folder."""
    with tempfile.TemporaryDirectory() as directory:
        server = TemporalServer(
            Path(directory), headless=True, durable=False, dynamic_config=FAST_CONTINUE_AS_NEW
        )
        await server.start()
        try:
            for name, history in (await record_all(server.address)).items():
                text = json.dumps(json.loads(history.to_json()), indent=1, sort_keys=True)
                (folder / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
        finally:
            await server.stop()
