import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from typer.testing import CliRunner

from activities.ledger.database import open_pool
from deploy.postgres import Database
from tests.activities.books import RUN, Books
from tests.conftest import drive
from tests.ledger.planting import close_run
from worker.cli import app
from worker.notify_settings import NotifySettings
from workflows.domain.errors import RefusedToStart

WEBHOOK = {"WEBHOOK_URL": "https://ops.example/hook/hush-hush", "WEBHOOK_SECRET": "0123456789abcdef"}
MAIL = {
    "SMTP_URL": "smtps://u:hush-hush@mail.example",
    "EMAIL_FROM": "a@b.example",
    "EMAIL_TO": "c@d.example",
}


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is to be told anything."""
    for name in list(os.environ):
        if name.startswith("CHARGEONCE_NOTIFY_"):
            monkeypatch.delenv(name)


def configure(monkeypatch: pytest.MonkeyPatch, values: dict[str, str]) -> NotifySettings:
    """Set these variables, without their prefix, and read them."""
    for name, value in values.items():
        monkeypatch.setenv(f"CHARGEONCE_NOTIFY_{name}", value)
    return NotifySettings()


def type_json(*words: str) -> tuple[int, dict[str, Any]]:
    """Run a command with --json; its exit code, and the one object on its stdout."""
    result = CliRunner().invoke(app, [*words, "--json"], prog_name="chargeonce")
    document: dict[str, Any] = json.loads(result.stdout)
    return result.exit_code, document


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({}, []),
        (WEBHOOK, ["webhook"]),
        (MAIL, ["email"]),
        ({**WEBHOOK, "SLACK_URL": "https://chat.example/x", **MAIL}, ["webhook", "slack", "email"]),
    ],
)
def test_destinations_are_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], names: list[str]
) -> None:
    """Each is there when its address is, and no secret shows in the settings' repr."""
    settings = configure(monkeypatch, values)
    assert [one.name for one in settings.destinations()] == names
    assert "hush-hush" not in f"{settings!r} {settings.destinations()!r}"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"WEBHOOK_URL": WEBHOOK["WEBHOOK_URL"]}, "WEBHOOK_SECRET is not set"),
        ({**WEBHOOK, "WEBHOOK_SECRET": "hush-hush"}, "WEBHOOK_SECRET has fewer than 16"),
        ({**WEBHOOK, "WEBHOOK_URL": "ftp://ops.example/hush-hush"}, "WEBHOOK_URL can't be right"),
        ({**WEBHOOK, "WEBHOOK_URL": "https://[hush-hush"}, "WEBHOOK_URL can't be right"),
        ({"SLACK_URL": "hush-hush"}, "SLACK_URL can't be right"),
        ({"SLACK_URL": "http://chat.example/hush-hush"}, "SLACK_URL can't be right"),
        ({**MAIL, "SMTP_URL": "smtp://u:hush-hush@mail.example"}, "in the clear"),
        ({"SMTP_URL": MAIL["SMTP_URL"]}, "EMAIL_TO is not set"),
        ({**MAIL, "EMAIL_TO": " , "}, "no recipient"),
        ({**MAIL, "EMAIL_TO": "hush-hush"}, "address"),
    ],
)
def test_half_a_destination_is_refused(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], message: str
) -> None:
    """A worker does not start with a destination that can't work, and no value is repeated."""
    settings = configure(monkeypatch, values)
    with pytest.raises(RefusedToStart, match=message) as refused:
        settings.destinations()
    assert "hush-hush" not in str(refused.value)


class _Ok(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Take everything."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


@pytest.fixture
def receiver_url() -> Iterator[str]:
    """A receiver in a thread of its own: the command runs its own event loop."""
    with HTTPServer(("127.0.0.1", 0), _Ok) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook"
        finally:
            server.shutdown()
            thread.join()


def test_a_test_message_tells_what_came_back(monkeypatch: pytest.MonkeyPatch, receiver_url: str) -> None:
    """Each destination is tried and named: all taken exits 0, one that is down exits 1, and none exits 4."""
    assert type_json("notifications", "test")[0] == 4
    configure(monkeypatch, {**WEBHOOK, "WEBHOOK_URL": receiver_url})
    exit_code, document = type_json("notifications", "test")
    assert exit_code == 0
    assert document["destinations"] == [{"destination": "webhook", "delivered": True, "answer": "HTTP 204"}]
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        configure(monkeypatch, {"SLACK_URL": f"http://127.0.0.1:{bound.getsockname()[1]}/hush-hush"})
        exit_code, document = type_json("notifications", "test")
    assert exit_code == 1
    assert [one["delivered"] for one in document["destinations"]] == [True, False]
    assert "hush-hush" not in json.dumps(document)


def test_the_outbox_can_be_listed(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was to be told, of all runs or of one, with state and tries."""

    async def close() -> None:
        async with open_pool(database.app_url, connections=1, destinations=["slack"]) as pool:
            await Books(pool, gateway=None, sim=None).open_run()  # type: ignore[arg-type]
            await close_run(pool, RUN)

    drive(close())
    monkeypatch.setenv("CHARGEONCE_DATABASE_URL", database.app_url)
    monkeypatch.setenv("STRIPE_SECRET_KEY", "sk_test_synthetic")
    exit_code, document = type_json("notifications", "list")
    assert exit_code == 0
    [listed] = document["notifications"]
    assert (listed["kind"], listed["destination"], listed["state"], listed["tries"]) == (
        "run_closed", "slack", "waiting", 0,
    )  # fmt: skip
    assert type_json("notifications", "list", "--run", "another")[1] == {"notifications": []}
    shown = CliRunner().invoke(app, ["notifications", "list", "--run", RUN], prog_name="chargeonce")
    assert "run_closed" in shown.stdout
    nothing = CliRunner().invoke(app, ["notifications", "list", "--run", "another"], prog_name="chargeonce")
    assert "here, nobody is to be notified: set CHARGEONCE_NOTIFY_WEBHOOK_URL" in nothing.stdout
    report = CliRunner().invoke(app, ["run", "show", RUN], prog_name="chargeonce")
    assert report.exit_code == 0
