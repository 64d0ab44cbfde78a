from collections.abc import AsyncIterator, Iterator

import pytest

from deploy.postgres import Database
from tests.proxy.stage import Stage, open_stage
from tests.proxy.two_proxies import Nursery, open_nursery


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    """A simulator, a ledger and a proxy of this test's own."""
    async with open_stage(database) as opened:
        yield opened


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """A process that has everything imported and forks proxies."""
    with open_nursery() as opened:
        yield opened
