import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from deploy.temporal_server import TemporalServer
from tests.conftest import FAST_CONTINUE_AS_NEW, drive
from tests.secret_watch import refuse_secrets_in_histories
from tests.workflows.fake_ledger import FakeLedger
from tests.workflows.stage import Stage, open_stage

SUGGESTED_AT_EVENTS = 30
RESTLESS = {"limit.historyCount.suggestContinueAsNew": str(SUGGESTED_AT_EVENTS)}


@pytest.fixture
def ledger() -> FakeLedger:
    """An in-memory ledger; the test says what it answers before it starts a run."""
    return FakeLedger()


@pytest.fixture
async def stage(temporal_server: TemporalServer, task_queue: str, ledger: FakeLedger) -> AsyncIterator[Stage]:
    """A worker over `ledger`."""
    async with open_stage(temporal_server.address, task_queue, ledger) as opened:
        yield opened


@pytest.fixture(scope="session")
def restless_server() -> Iterator[TemporalServer]:
    """A Temporal server that suggests continue-as-new after 30 events instead of 4,096."""
    with tempfile.TemporaryDirectory(prefix="chargeonce-restless-") as directory:
        server = TemporalServer(
            Path(directory), headless=True, durable=False, dynamic_config=FAST_CONTINUE_AS_NEW | RESTLESS
        )
        drive(server.start())
        try:
            yield server
            drive(refuse_secrets_in_histories(server.address))
        finally:
            drive(server.stop())


@pytest.fixture
async def restless_stage(
    restless_server: TemporalServer, task_queue: str, ledger: FakeLedger
) -> AsyncIterator[Stage]:
    """A worker over `ledger` on the restless server."""
    async with open_stage(restless_server.address, task_queue, ledger) as opened:
        yield opened
