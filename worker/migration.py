"""`chargeonce migrate`: bring a ledger's schema to this version, or say what stands in the way."""

from dataclasses import asdict, dataclass

from activities.ledger.migrate import migrate
from worker.console_output import Output
from worker.environment import NO_OWNER
from workflows.domain.errors import RefusedToStart


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles that log in to the ledger's database, by what they do there; None is granted nothing."""

    app: str | None = None
    proxy: str | None = None
    web: str | None = None
    auditor: str | None = None


async def migrate_ledger(output: Output, database_url: str | None, roles: Roles) -> None:
    """Apply what is missing and print its names.

    Raises:
        RefusedToStart: No database is named or reached, it is not one that this version or this role may
            migrate, or a role does not exist.
    """
    if database_url is None:
        raise RefusedToStart(NO_OWNER)
    named = {f"{name}_role": role for name, role in asdict(roles).items()}
    applied = await migrate(database_url, **named)
    given = [role for role in named.values() if role is not None]
    granted = f"; granted {' and '.join(given)} what they need" if given else ""
    said = f"applied {', '.join(applied)}" if applied else "nothing to apply: the schema is current"
    output.result({"applied": applied, **named}, lambda: [said + granted])
