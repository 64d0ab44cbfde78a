"""A scene with an inbox, for the tests of all that listens to Stripe or looks back at it."""

from collections.abc import AsyncIterator

import pytest

from activities.ledger import inbox
from deploy.postgres import Database
from tests.activities.conftest import hurry
from tests.activities.scene import Scene, open_scene
from tests.web.mailroom import Mailroom, open_mailroom


@pytest.fixture
async def scene(stage: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """A run's empty ledger and Stripe, clocks standing still; nothing waits for real time."""
    hurry(monkeypatch)
    monkeypatch.setattr(inbox, "GATHER_SECONDS", 0.0)
    async with open_scene(stage) as opened:
        yield opened


@pytest.fixture
async def mail(scene: Scene) -> AsyncIterator[Mailroom]:
    """The scene's inbox."""
    async with open_mailroom(scene) as opened:
        yield opened
