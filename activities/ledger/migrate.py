"""Apply the migrations, each once, each in a transaction of its own, one migrator at a time.

Files are named `NNNN_pre_*.sql` (applied before the new code runs) or `NNNN_post_*.sql` (after the old code
is gone). An applied file is never edited: its hash is kept and compared.
"""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

import asyncpg

from activities.ledger import grants
from activities.ledger.database import connect, refuse_older_server
from workflows.domain.errors import InvalidInput, RefusedToStart

_LOCK = 7_240_911  # any constant: the advisory lock that serialises migrators
_LEDGER = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    name text PRIMARY KEY, sha256 text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
)
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of `migrations/`."""

    name: str
    sql: str

    @property
    def sha256(self) -> str:
        """The hash by which an edit of an applied file is noticed."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def known_migrations() -> list[Migration]:
    """Return the migrations that this version ships, in order."""
    folder = files("activities.ledger").joinpath("migrations")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [Migration(name, folder.joinpath(name).read_text(encoding="utf-8")) for name in names]


async def migrate(
    database_url: str,
    *,
    app_role: str | None = None,
    proxy_role: str | None = None,
    web_role: str | None = None,
    auditor_role: str | None = None,
    movable_clock: bool = False,
) -> list[str]:
    """Bring the schema to this version and return the names of the migrations applied now.

    Args:
        database_url: A connection as the schema's owner.
        app_role: The role that workers log in with; it is granted what they need and no more.
        proxy_role: The role that the spend-cap proxy logs in with; it may count money, and charge nobody.
        web_role: The role that the webhook receiver logs in with; it may keep events.
        auditor_role: A role that may read everything and change nothing.
        movable_clock: Whether `move_ledger_clock` may ever work on this database. Only the first migration
            of a database decides; production leaves it False.

    Raises:
        RefusedToStart: The database can't be reached, its server is too old, a role does not exist, this one
            does not own the schema, an applied migration was edited, or the schema is newer than this
            version.
    """
    connection = await connect(database_url)
    try:
        refuse_older_server(int(await connection.fetchval("SHOW server_version_num")))
        granted = {
            role: rights
            for role, rights in (
                (app_role, grants.APP),
                (proxy_role, grants.PROXY),
                (web_role, grants.WEB),
                (auditor_role, grants.AUDITOR),
            )
            if role is not None
        }
        for role in granted:
            await _refuse_missing_role(connection, role)
        await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
        await connection.execute(_LEDGER)
        applied = await _apply_missing(connection)
        await connection.execute(
            "INSERT INTO ledger_clock (movable) VALUES ($1) ON CONFLICT DO NOTHING", movable_clock
        )
        await connection.execute("SELECT notice_restore()")
        for role, rights in granted.items():
            await connection.execute(rights.format(role=_quoted(role)))
        return applied
    except asyncpg.InsufficientPrivilegeError as error:
        raise RefusedToStart(
            f"this role may not change the ledger's schema, only the owner of its database: {error}"
        ) from error
    finally:
        await connection.close()


async def _refuse_missing_role(connection: "asyncpg.Connection[asyncpg.Record]", role: str) -> None:
    if await connection.fetchval("SELECT true FROM pg_roles WHERE rolname = $1", role):
        return
    raise RefusedToStart(
        f"there is no role {_quoted(role)}, so nothing was changed. Make it first, as a superuser: "
        f"CREATE ROLE {_quoted(role)} LOGIN PASSWORD '...'"
    )


async def _apply_missing(connection: "asyncpg.Connection[asyncpg.Record]") -> list[str]:
    done = {row["name"]: row["sha256"] for row in await connection.fetch("SELECT * FROM schema_migrations")}
    known = known_migrations()
    if unknown := sorted(done.keys() - {migration.name for migration in known}):
        raise RefusedToStart(f"the database has migrations this version does not know: {', '.join(unknown)}")
    applied = []
    for migration in known:
        if migration.name in done:
            if done[migration.name] != migration.sha256:
                raise RefusedToStart(f"{migration.name} was edited after it was applied")
            continue
        async with connection.transaction():
            await connection.execute(migration.sql)
            await connection.execute(
                "INSERT INTO schema_migrations (name, sha256) VALUES ($1, $2)",
                migration.name,
                migration.sha256,
            )
        applied.append(migration.name)
    return applied


def _quoted(role: str) -> str:
    if not role.replace("_", "").isalnum():
        raise InvalidInput(f"not a role name: {role[:40]!a}")
    return f'"{role}"'
