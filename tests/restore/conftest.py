from collections.abc import AsyncIterator, Iterator

import pytest

from activities.ledger import inbox
from deploy.postgres import Database, PostgresServer
from tests.activities.conftest import hurry
from tests.activities.scene import Scene, open_scene
from tests.conftest import drive
from tests.web.mailroom import Mailroom, open_mailroom

STAGE = "ledger_of_restores"


@pytest.fixture(scope="session")
def stage(postgres_server: PostgresServer, ledger_template: str) -> Iterator[Database]:
    """A ledger for all scenes of this process, one after the other: each finds it empty."""
    database = drive(postgres_server.create_database(STAGE, template=ledger_template))
    try:
        yield database
    finally:
        drive(postgres_server.drop_database(STAGE))


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
