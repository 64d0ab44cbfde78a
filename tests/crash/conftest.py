"""One world per crash test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deploy.postgres import Database
from deploy.stripe_sim.testing import running_sim
from deploy.temporal_server import TemporalServer
from tests.crash.world import World, open_world
from tests.forking import Nursery


@pytest.fixture
async def world(
    database: Database,
    temporal_server: TemporalServer,
    nursery: Nursery,
    task_queue: str,
    tmp_path: Path,
) -> AsyncIterator[World]:
    """Ledger, simulator, Temporal and a task queue of this test's own."""
    async with (
        running_sim() as sim,
        open_world(
            database=database,
            sim=sim,
            temporal=temporal_server,
            nursery=nursery,
            task_queue=task_queue,
            folder=tmp_path,
        ) as world,
    ):
        yield world
