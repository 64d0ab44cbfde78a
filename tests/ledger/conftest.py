from collections.abc import AsyncIterator

import pytest

from activities.ledger.charges import ChargeLedger
from activities.ledger.database import Pool, open_pool
from deploy.postgres import Database
from tests.ledger.planting import freeze_clock


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    """A pool as workers have it."""
    async with open_pool(database.app_url, connections=3) as opened:
        yield opened


@pytest.fixture
async def ledger(database: Database, pool: Pool) -> ChargeLedger:
    """The send path's writes, at a ledger whose clock stands still at noon."""
    await freeze_clock(database)
    return ChargeLedger(pool)
