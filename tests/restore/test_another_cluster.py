"""Really restored: from a dump into another cluster, and by recovery onto another timeline."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from activities.ledger.database import open_pool
from activities.ledger.migrate import migrate
from activities.ledger.restores import Restore, RestoreLedger
from deploy.postgres import DATABASE, GRANTED_ROLES, OWNER_ROLE, PostgresServer
from deploy.postgres_programs import find_identity, find_program, give_to

pytestmark = pytest.mark.timeout(120)


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[PostgresServer]:
    """Yield a server of its own."""
    server = PostgresServer(directory, durable=False)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def found(server: PostgresServer) -> Restore | None:
    """Connect as a worker does, and return the restore that is open then."""
    async with open_pool(server.app_url, connections=1) as pool:
        return await RestoreLedger(pool).open()


def _dump_into(source: PostgresServer, target: PostgresServer) -> None:
    dump = subprocess.run(
        [find_program("pg_dump"), "--dbname", source.url(OWNER_ROLE, DATABASE)],
        capture_output=True,
        check=True,
        timeout=60,
    )
    subprocess.run(
        [find_program("psql"), "-q", "-v", "ON_ERROR_STOP=1", "-d", target.url(OWNER_ROLE, DATABASE)],
        input=dump.stdout,
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=60,
    )


async def test_a_dump_in_another_cluster_is_a_restore(tmp_path: Path) -> None:
    """The identity comes along with the dump, and the first connection finds that it is another one."""
    async with running(tmp_path / "first") as first, running(tmp_path / "second") as second:
        await migrate(first.owner_url, **GRANTED_ROLES, movable_clock=True)
        assert await found(first) is None
        await asyncio.to_thread(_dump_into, first, second)
        restore = await found(second)
        assert restore is not None
        assert "was another one" in restore.why
        assert await found(first) is None


async def test_recovery_onto_another_timeline_is_a_restore_and_a_restart_is_none(tmp_path: Path) -> None:
    """Point-in-time recovery, and the promotion of a standby, keep the cluster and open a timeline."""
    directory = tmp_path / "postgres"
    async with running(directory) as server:
        await migrate(server.owner_url, **GRANTED_ROLES, movable_clock=True)
    async with running(directory) as server:
        assert await found(server) is None
    signal = directory / "data" / "recovery.signal"
    signal.touch()
    with (directory / "data" / "postgresql.auto.conf").open("a") as settings:
        settings.write("restore_command = '/bin/false'\nhot_standby = off\n")
    give_to(signal, identity=find_identity())
    async with running(directory) as server:
        restore = await found(server)
        assert restore is not None
        assert "on timeline 00000002" in restore.why
