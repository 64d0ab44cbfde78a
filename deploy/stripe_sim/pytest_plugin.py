"""Fixtures for anybody's tests: `pytest_plugins = ["deploy.stripe_sim.pytest_plugin"]`."""

from collections.abc import AsyncIterator, Iterator

import pytest

from deploy.stripe_sim.testing import RunningSim, running_sim
from deploy.stripe_sim.threaded import ThreadedSim, sim_in_thread


@pytest.fixture
def stripe_sim() -> Iterator[ThreadedSim]:
    """A simulator of the test's own, in a thread."""
    with sim_in_thread() as sim:
        yield sim


@pytest.fixture
async def async_stripe_sim() -> AsyncIterator[RunningSim]:
    """A simulator of the test's own, in its event loop; needs pytest-asyncio or the like."""
    async with running_sim() as sim:
        yield sim
