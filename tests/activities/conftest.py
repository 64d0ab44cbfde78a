from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from activities import carry
from activities.ledger import group_commit
from deploy.postgres import Database
from tests.activities import local_limiter
from tests.activities.planning import Plans
from tests.activities.scene import PAUSE_SECONDS, Scene, open_scene
from tests.staging import stage_named

stage = stage_named("ledger_stage")


@pytest.fixture
async def scene(stage: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """A run's empty ledger and Stripe, clocks standing still; nothing waits for real time."""
    hurry(monkeypatch)
    async with open_scene(stage) as opened:
        yield opened


@pytest.fixture
async def plans(scene: Scene, tmp_path: Path) -> AsyncIterator[Plans]:
    """Planners beside the scene, over files in a folder of their own."""
    opened = Plans(scene, tmp_path)
    yield opened
    for accounts in opened.opened:
        await accounts.close()


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let backing off, slowing down and waiting for company take no time worth waiting for."""
    monkeypatch.setattr(carry, "BACKOFF_SECONDS", PAUSE_SECONDS)
    monkeypatch.setattr(carry, "BACKOFF_SECONDS_MAX", PAUSE_SECONDS)
    monkeypatch.setattr(local_limiter, "PAUSE_SECONDS_DEFAULT", PAUSE_SECONDS)
    monkeypatch.setattr(group_commit, "GATHER_SECONDS", 0.0)
