from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from activities import stripe_pages
from activities.ledger import inbox
from deploy.postgres import Database, PostgresServer
from tests.activities.conftest import hurry
from tests.activities.scene import Scene, open_scene
from tests.conftest import drive
from tests.export.office import Office
from tests.web.mailroom import open_mailroom

STAGE = "ledger_of_packs"


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
    monkeypatch.setattr(stripe_pages, "FIRST_PAUSE_SECONDS", 0.001)
    async with open_scene(stage) as opened:
        yield opened


@pytest.fixture
async def office(scene: Scene, tmp_path: Path) -> AsyncIterator[Office]:
    """Whoever writes packs of the scene's run into a folder of the test's own."""
    async with open_mailroom(scene) as mail:
        yield Office(mail, tmp_path)
