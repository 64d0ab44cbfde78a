"""`chargeonce migrate`: bring a ledger's schema to this version, or say what stands in the way."""

from activities.ledger.migrate import migrate
from worker.console_output import Output
from worker.environment import NO_OWNER
from workflows.domain.errors import RefusedToStart


async def migrate_ledger(
    output: Output, database_url: str | None, *, app_role: str | None, proxy_role: str | None
) -> None:
    """Apply what is missing and print its names.

    Raises:
        RefusedToStart: No database is named or reached, it is not one that this version or this role may
            migrate, or a role does not exist.
    """
    if database_url is None:
        raise RefusedToStart(NO_OWNER)
    applied = await migrate(database_url, app_role=app_role, proxy_role=proxy_role)
    roles = [role for role in (app_role, proxy_role) if role is not None]
    granted = f"; granted {' and '.join(roles)} what they need" if roles else ""
    said = f"applied {', '.join(applied)}" if applied else "nothing to apply: the schema is current"
    output.result(
        {"applied": applied, "app_role": app_role, "proxy_role": proxy_role}, lambda: [said + granted]
    )
