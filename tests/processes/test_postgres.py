import asyncio
import os
import shutil
from pathlib import Path

import asyncpg
import pytest

from deploy.postgres import APP_ROLE, OWNER_ROLE, PostgresServer
from deploy.processes import start_time_of

IDENTITIES = ["namespace", "nobody"] if os.geteuid() == 0 else ["same"]


async def _fetch(url: str, query: str) -> object:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        value: object = await connection.fetchval(query)
    finally:
        await connection.close(timeout=10)
    return value


@pytest.mark.parametrize("identity", IDENTITIES)
async def test_committed_rows_survive_a_killed_server(
    identity: str, fresh_cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server killed with SIGKILL starts again, on its port, with all that was committed."""
    home = tmp_path / "closed"
    home.mkdir(mode=0o700)
    shutil.copytree(fresh_cluster, home / "postgres")
    monkeypatch.setattr("deploy.postgres.find_identity", lambda: identity)
    server = PostgresServer(home / "postgres", durable=False)
    await server.start()
    try:
        port = server.port
        await _fetch(server.owner_url, "CREATE TABLE kept AS SELECT 42 AS answer")
        killed = server.kill()
        assert killed is not None
        assert start_time_of(killed) is None
        await server.start()
        assert server.port == port
        assert await _fetch(server.owner_url, "SELECT answer FROM kept") == 42
    finally:
        await server.stop()


async def test_a_wrong_password_is_refused(postgres_server: PostgresServer) -> None:
    """Being on the loopback is not enough: every role needs its password."""
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(
            host="127.0.0.1",
            port=postgres_server.port,
            user=OWNER_ROLE,
            password="wrong",
            database="chargeonce",
            timeout=10,
        )


async def test_workers_own_nothing(postgres_server: PostgresServer) -> None:
    """The workers' role connects, and may not create a table until a migration gives it rights."""
    assert await _fetch(postgres_server.app_url, "SELECT current_user::text") == APP_ROLE
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await _fetch(postgres_server.app_url, "CREATE TABLE stolen (a int)")


async def test_a_server_is_as_durable_as_it_says(postgres_server: PostgresServer) -> None:
    """Only `durable=False` switches fsync off, and nothing switches synchronous commits off."""
    assert await _fetch(postgres_server.owner_url, "SHOW fsync") == "off"
    assert await _fetch(postgres_server.owner_url, "SHOW synchronous_commit") == "on"
    settings = PostgresServer(Path("unused"))._settings()
    assert {"fsync=on", "synchronous_commit=on", "full_page_writes=on"} <= set(settings)


async def test_a_copy_of_a_database_is_separate(postgres_server: PostgresServer) -> None:
    """A database made from a template has its rows, and what happens in the copy stays there."""
    template = await postgres_server.create_database("copy_template")
    await _fetch(template.owner_url, "CREATE TABLE kept AS SELECT 1 AS answer")
    copy = await postgres_server.create_database("copy_made", template="copy_template")
    await _fetch(copy.owner_url, "UPDATE kept SET answer = 2")
    assert await _fetch(copy.owner_url, "SELECT answer FROM kept") == 2
    assert await _fetch(template.owner_url, "SELECT answer FROM kept") == 1
    await postgres_server.drop_database("copy_made")
    await postgres_server.drop_database("copy_template")
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await _fetch(copy.owner_url, "SELECT 1")


async def test_a_taken_port_is_avoided(
    postgres_server: PostgresServer, fresh_cluster: Path, tmp_path: Path
) -> None:
    """A server that prefers a taken port comes up on another one, and stopping it leaves no process."""
    shutil.copytree(fresh_cluster, tmp_path / "postgres")
    server = PostgresServer(tmp_path / "postgres", port=postgres_server.port, durable=False)
    await server.start()
    try:
        assert server.port != postgres_server.port
        pid = server.pid
        assert pid is not None
    finally:
        await server.stop()
    assert start_time_of(pid) is None
    assert not server.running


async def test_a_stale_lock_of_a_reused_pid_is_no_obstacle(fresh_cluster: Path, tmp_path: Path) -> None:
    """After a crash, a `postmaster.pid` whose pid is a stranger's by now does not keep the server down."""
    shutil.copytree(fresh_cluster, tmp_path / "postgres")
    server = PostgresServer(tmp_path / "postgres", durable=False)
    await server.start()
    try:
        server.kill()
        lock = tmp_path / "postgres" / "data" / "postmaster.pid"
        _, rest = lock.read_text().split("\n", 1)
        stranger = await asyncio.create_subprocess_exec("sleep", "60")
        try:
            lock.write_text(f"{stranger.pid}\n{rest}")
            await server.start()
            assert server.running
        finally:
            stranger.kill()
            await stranger.wait()
    finally:
        await server.stop()
