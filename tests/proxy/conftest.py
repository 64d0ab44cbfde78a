from collections.abc import AsyncIterator

import pytest

from deploy.postgres import Database
from tests.proxy.stage import Stage, open_stage


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    """A simulator, a ledger and a proxy of this test's own."""
    async with open_stage(database) as opened:
        yield opened
