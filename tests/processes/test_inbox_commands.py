"""`chargeonce inbox`, typed by a person and by a script."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from activities.ledger.database import open_pool
from activities.ledger.inbox import Ending, EventState, InboxLedger, Received
from deploy.postgres import Database
from tests.conftest import drive
from worker.cli import app
from workflows.domain.webhook_event import WebhookEvent

CHARGE = "ab" * 16


def event(number: int) -> WebhookEvent:
    """Return an event about a charge."""
    return WebhookEvent(
        event_id=f"evt_{number}",
        type="payment_intent.succeeded",
        account=None,
        live=False,
        created_epoch_seconds=1_930_089_600,
        object_kind="payment_intent",
        object_id=f"pi_{number}",
        payment_intent=f"pi_{number}",
        charge_id=CHARGE if number == 1 else None,
        request_id=None,
    )


@pytest.fixture
def inbox(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A ledger with three events, the second of them parked; nothing else is configured."""
    monkeypatch.setenv("CHARGEONCE_DATABASE_URL", database.app_url)
    for name in ("STRIPE_SECRET_KEY", "CHARGEONCE_PROXY_URL", "TEMPORAL_ADDRESS"):
        monkeypatch.delenv(name, raising=False)

    async def fill() -> None:
        async with open_pool(database.app_url, connections=1) as pool:
            ledger = InboxLedger(pool)
            for number in (1, 2, 3):
                await ledger.keep(Received(event(number), "acct_sim"))
            claimed = await ledger.claim(limit=10, lease_seconds=60)
            parked = tuple(one for one in claimed if one.event_id == "evt_2")
            await ledger.end(Ending(parked, EventState.PARKED, "Stripe does not show pi_2"))

    drive(fill())
    return database


def type_json(*words: str) -> tuple[int, dict[str, Any]]:
    """Run a command with --json; its exit code, and the one object on its stdout."""
    result = CliRunner().invoke(app, ["inbox", *words, "--json"], prog_name="chargeonce")
    document: dict[str, Any] = json.loads(result.stdout)
    return result.exit_code, document


def test_events_are_listed_by_state(inbox: Database) -> None:
    """Newest first, with counts; a state, a charge or a PaymentIntent narrows it down."""
    code, listed = type_json("list")
    assert code == 0
    assert listed["counts"] == {"parked": 1, "waiting": 2}
    assert [one["event_id"] for one in listed["events"]] == ["evt_3", "evt_2", "evt_1"]
    for words, ids in (
        (["--state", "parked"], ["evt_2"]),
        (["--charge", CHARGE], ["evt_1"]),
        (["--payment-intent", "pi_3"], ["evt_3"]),
        (["--limit", "1"], ["evt_3"]),
    ):
        assert [one["event_id"] for one in type_json("list", *words)[1]["events"]] == ids


def test_an_event_is_shown_with_its_reason(inbox: Database) -> None:
    """What it is about, what came of it, and how often it was tried."""
    code, shown = type_json("show", "evt_2")
    assert code == 0
    assert (shown["event"]["state"], shown["event"]["reason"]) == ("parked", "Stripe does not show pi_2")
    assert shown["event"]["tries"] == 1
    people = CliRunner().invoke(app, ["inbox", "show", "evt_2"], prog_name="chargeonce")
    assert "Stripe does not show pi_2" in people.stdout


def test_what_was_parked_can_be_replayed(inbox: Database) -> None:
    """By its id or by its state; afterwards it waits as if it had just come."""
    assert type_json("replay", "evt_2") == (0, {"replayed": ["evt_2"]})
    assert type_json("show", "evt_2")[1]["event"]["state"] == "waiting"
    assert type_json("replay", "--state", "parked") == (0, {"replayed": []})
    assert sorted(type_json("replay", "--state", "waiting")[1]["replayed"]) == ["evt_1", "evt_2", "evt_3"]


@pytest.mark.parametrize(
    "words",
    [
        ["show", "evt_none"],
        ["list", "--state", "lost"],
        ["replay"],
        ["replay", "evt_1", "--state", "parked"],
        ["replay", "--state", "lost"],
        ["replay", "evt_1", "evt_none"],
    ],
)
def test_what_is_not_there_is_a_usage_error(inbox: Database, words: list[str]) -> None:
    """Exit 2, with one line that says what is meant."""
    code, refused = type_json(*words)
    assert code == 2
    assert refused["error"]


def test_the_receiver_says_what_it_needs(inbox: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without secrets nobody can be believed, so nothing starts: exit 4."""
    monkeypatch.delenv("CHARGEONCE_WEBHOOK_SECRETS", raising=False)
    result = CliRunner().invoke(app, ["web"], prog_name="chargeonce")
    assert result.exit_code == 4
    assert "CHARGEONCE_WEBHOOK_SECRETS" in result.stderr
