"""`chargeonce migrate`: bring a ledger's schema to this version, or say what stands in the way."""

from activities.ledger.migrate import migrate
from worker.console_output import Output
from worker.environment import NOTHING_RUNS
from workflows.domain.errors import RefusedToStart


async def migrate_ledger(
    output: Output, database_url: str | None, *, app_role: str | None, proxy_role: str | None
) -> None:
    """Apply what is missing and print its names.

    Raises:
        RefusedToStart: No database is named or reached, or it is not one this version may migrate.
    """
    if database_url is None:
        raise RefusedToStart(NOTHING_RUNS)
    applied = await migrate(database_url, app_role=app_role, proxy_role=proxy_role)
    output.result(
        {"applied": applied, "app_role": app_role, "proxy_role": proxy_role},
        lambda: [f"applied {', '.join(applied)}" if applied else "nothing to apply: the schema is current"],
    )
