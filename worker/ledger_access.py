"""The ledger for commands that need nothing else, with one clear refusal where their role may not use it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from activities.ledger.database import Pool, open_pool, refused_without_rights
from worker.settings import LedgerSettings

ADVICE = (
    "the role of CHARGEONCE_DATABASE_URL needs what `chargeonce migrate --app-role ROLE` grants, "
    "run as the owner of the schema"
)


@asynccontextmanager
async def open_ledger(settings: LedgerSettings) -> AsyncIterator[Pool]:
    """Yield one connection to the ledger, as a pool.

    Raises:
        RefusedToStart: It can't be reached, has no schema, or its role may not do what is done here.
    """
    with refused_without_rights(ADVICE):
        async with open_pool(settings.database_url.get_secret_value(), connections=1) as pool:
            yield pool
