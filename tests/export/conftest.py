from pathlib import Path

import pytest

from activities import stripe_pages
from tests.export.office import Office
from tests.staging import stage_named
from tests.web.mail_fixtures import mail, scene
from tests.web.mailroom import Mailroom

__all__ = ["mail", "scene", "stage"]

stage = stage_named("ledger_of_packs")


@pytest.fixture
def office(mail: Mailroom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Office:
    """Whoever writes packs of the scene's run into a folder of the test's own; asking again takes no time."""
    monkeypatch.setattr(stripe_pages, "FIRST_PAUSE_SECONDS", 0.001)
    return Office(mail, tmp_path)
