"""A shop and its Stripe per unsafe client; a ledger and its Stripe per situation of ours."""

from collections.abc import AsyncIterator

import pytest

from deploy.postgres import Database
from deploy.stripe_sim.testing import running_sim
from tests.activities.conftest import hurry
from tests.activities.scene import Scene, open_scene
from tests.failure_modes.shop import Shop
from tests.staging import stage_named

stage = stage_named("failure_modes_stage")


@pytest.fixture(autouse=True)
def _loopback_needs_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy from the environment would be taken even to this machine."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    """A shop of its own, and its Stripe."""
    async with running_sim() as sim:
        yield Shop(sim)


@pytest.fixture
async def scene(stage: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """A run's empty ledger and Stripe, clocks standing still; backing off takes no time."""
    hurry(monkeypatch)
    async with open_scene(stage) as opened:
        yield opened
