"""The fixture ladder: a PostgreSQL and a Temporal per pytest process, a database and task queue per test.

Everything starts only when a test asks for it. Session fixtures are synchronous and drive the servers on a
loop of their own, since the loop of an async test lives no longer than the test. Each pytest-xdist process
has its own ladder.
"""

import asyncio
import itertools
import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from deploy.postgres import GRANTED_ROLES, Database, PostgresServer
from deploy.temporal_server import TemporalServer
from tests import secret_watch
from tests.forking import Nursery, open_nursery

Result = TypeVar("Result")

TEMPLATE = "ledger_template"
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 4 * 1024**3
# Temporal lets a second pass between two runs of one workflow id, which is what continue-as-new makes.
FAST_CONTINUE_AS_NEW = {"history.workflowIdReuseMinimalInterval": '"1ms"'}
_database_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C reach the commands under test: a shell's background job would have them ignore it.

    And let the hundreds of interpreters that tests start read what the first of them has compiled.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    config.pluginmanager.register(secret_watch)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def drive(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end on a private loop, leaving the loop of pytest-asyncio as it is."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(work)


def roomy_memory(prefix: str) -> Path | None:
    """Return a folder in memory with room for a server and its databases; None where there is none.

    What a killed session left there is removed: its folders are named by `prefix` and pid.
    """
    if not os.access(MEMORY, os.W_OK):
        return None
    for left in MEMORY.glob(f"{prefix}*"):
        if not Path("/proc", left.name.removeprefix(prefix).partition("-")[0]).exists():
            shutil.rmtree(left, ignore_errors=True)
    return MEMORY if shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN else None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A running PostgreSQL, fast and not safe against power loss."""
    memory = roomy_memory(prefix := "chargeonce-postgres-")
    with tempfile.TemporaryDirectory(prefix=f"{prefix}{os.getpid()}-", dir=memory) as directory:
        server = PostgresServer(Path(directory), durable=False, in_memory=memory is not None)
        drive(server.start())
        try:
            yield server
            # Its databases were looked through one by one, before they were dropped.
            secret_watch.refuse_secrets_in_files(server.directory, passed_over=frozenset({"data"}))
        finally:
            drive(server.stop())


@pytest.fixture(scope="session")
def ledger_template(postgres_server: PostgresServer) -> str:
    """The name of a migrated, empty ledger database that is only ever copied."""
    from activities.ledger.migrate import migrate

    async def create() -> None:
        template = await postgres_server.create_database(TEMPLATE)
        await migrate(template.owner_url, **GRANTED_ROLES, movable_clock=True)

    drive(create())
    return TEMPLATE


@pytest.fixture
def database(postgres_server: PostgresServer, ledger_template: str) -> Iterator[Database]:
    """A migrated, empty ledger database that belongs to this test alone."""
    name = f"ledger_{next(_database_numbers)}"
    created = drive(postgres_server.create_database(name, template=ledger_template))
    try:
        yield created
        drive(secret_watch.refuse_secrets_in_database(postgres_server, name))
    finally:
        drive(postgres_server.drop_database(name))


@pytest.fixture(scope="session")
def temporal_server() -> Iterator[TemporalServer]:
    """A running Temporal development server, in memory and without its web UI."""
    with tempfile.TemporaryDirectory(prefix="chargeonce-temporal-") as directory:
        server = TemporalServer(
            Path(directory), headless=True, durable=False, dynamic_config=FAST_CONTINUE_AS_NEW
        )
        drive(server.start())
        try:
            yield server
            drive(secret_watch.refuse_secrets_in_histories(server.address))
            secret_watch.refuse_secrets_in_files(server.directory)
        finally:
            drive(server.stop())


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """A process that has the product imported and forks workers, proxies and commands."""
    with open_nursery() as opened:
        yield opened


@pytest.fixture
def task_queue() -> str:
    """The name of a Temporal task queue that belongs to this test alone."""
    return f"test-{uuid.uuid4().hex}"
