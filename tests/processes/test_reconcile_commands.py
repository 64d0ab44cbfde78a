"""`chargeonce reconcile list` and `show`, typed by a person and by a script; and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from activities.ledger.database import open_pool
from activities.ledger.drift import DriftLedger
from activities.ledger.reconcile import ReconcileLedger
from deploy.postgres import Database
from tests.conftest import drive
from tests.processes.drifting import HOSTILE
from worker.cli import app
from workflows.contracts import Decision
from workflows.domain.drift import Drift, DriftKind, Repair
from workflows.reconcile_contracts import ReconcileReport, ReconcileRequest

ACCOUNT = "acct_1"
SINCE, UNTIL = 1_930_000_000.0, 1_930_086_400.0
CLEAN, DRIFTING, OPEN = "reconcile/clean/1", "reconcile/acct_1/1", "reconcile/under_way/1"
FOUND = (
    Drift(
        kind=DriftKind.DUPLICATE, subject="pi_2", ledger_says="paid", stripe_says="paid twice",
        repair=Repair.REFUND, charge_id="ab" * 16, customer=HOSTILE, line="base",
        payment_intents=("pi_1", "pi_2"), amount_minor=4_200, currency="usd",
    ),
    Drift(
        kind=DriftKind.ORPHAN, subject="pi_3", ledger_says="nothing", stripe_says="unconfirmed",
        repair=Repair.CANCEL,
    ),
)  # fmt: skip


@pytest.fixture
def ledger(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A ledger with a clean reconciliation, one that found two differences, and one that is under way."""
    monkeypatch.setenv("CHARGEONCE_DATABASE_URL", database.app_url)
    for name in ("STRIPE_SECRET_KEY", "CHARGEONCE_PROXY_URL", "TEMPORAL_ADDRESS"):
        monkeypatch.delenv(name, raising=False)

    async def fill() -> None:
        async with open_pool(database.app_url, connections=1) as pool:
            kept = ReconcileLedger(pool)
            for reconciliation_id in (CLEAN, DRIFTING, OPEN):
                workflow_id = reconciliation_id.removesuffix("/1")
                request = ReconcileRequest(
                    workflow_id=workflow_id,
                    account=ACCOUNT,
                    since_epoch_seconds=SINCE,
                    until_epoch_seconds=UNTIL,
                    decided_by=Decision(who="somebody@desk", reason="a drill"),
                )
                opened = await kept.open(request, f"owner of {workflow_id}")
                assert opened.reconciliation_id == reconciliation_id
                found = FOUND if reconciliation_id == DRIFTING else ()
                await DriftLedger(pool).record(reconciliation_id, ACCOUNT, found)
                if reconciliation_id != OPEN:
                    report = ReconcileReport(
                        reconciliation_id=reconciliation_id, account=ACCOUNT, charges=10,
                        found=dict.fromkeys([drift.kind for drift in found], 1),
                        open=dict.fromkeys([drift.kind for drift in found], 1),
                        requests={"pages": 1, "looks": 2}, bound=3,
                    )  # fmt: skip
                    await kept.close(reconciliation_id, report.model_dump(mode="json"))

    drive(fill())
    return database


def type_in(*words: str) -> tuple[int, str, str]:
    """Run a command; its exit code, stdout and stderr."""
    result = CliRunner().invoke(app, ["reconcile", *words], prog_name="chargeonce")
    return result.exit_code, result.stdout, result.stderr


def type_json(*words: str) -> tuple[int, dict[str, Any]]:
    """Run a command with --json; its exit code, and the one object on its stdout."""
    exit_code, stdout, _ = type_in(*words, "--json")
    assert stdout.count("\n") == 1
    document: dict[str, Any] = json.loads(stdout)
    return exit_code, document


def test_a_list_tells_what_each_found_and_left_open(ledger: Database) -> None:
    """Newest first; what is under way has no numbers yet."""
    exit_code, listed = type_json("list")
    rows = {one["reconciliation"]: one for one in listed["reconciliations"]}
    assert exit_code == 0
    assert list(rows) == [OPEN, DRIFTING, CLEAN]
    assert rows[DRIFTING]["open"] == {"duplicate": 1, "orphan": 1}
    assert (rows[CLEAN]["open"], rows[OPEN]["found"], rows[OPEN]["phase"]) == ({}, None, "open")
    assert len(type_json("list", "--limit", "1")[1]["reconciliations"]) == 1
    exit_code, text, _ = type_in("list")
    assert DRIFTING in text


def test_what_is_shown_ends_as_it_stands(ledger: Database) -> None:
    """Exit code 3 while a difference is open, 0 where all agreed or none is known yet, 4 for no such one."""
    exit_code, shown = type_json("show", DRIFTING)
    assert (exit_code, shown["verdict"], shown["open"]) == (3, "drift", 2)
    [duplicate, orphan] = shown["drift"]
    assert duplicate["command"] == (
        f"chargeonce refund {'ab' * 16} --payment-intent pi_2 --amount 42.00 --reason duplicate"
    )
    assert orphan["command"].startswith("chargeonce reconcile --since 2031-02-27T23:06:40+00:00 ")
    assert orphan["command"].endswith("--account acct_1 --repair")
    exit_code, clean = type_json("show", CLEAN)
    assert (exit_code, clean["verdict"], clean["drift"]) == (0, "clean", [])
    exit_code, open_one = type_json("show", OPEN)
    assert (exit_code, open_one["verdict"]) == (0, "under way")
    exit_code, nothing = type_json("show", "reconcile/nobody/1")
    assert exit_code == 4
    assert "chargeonce reconcile list" in nothing["error"]


def test_a_report_is_written_as_csv_and_as_a_page(ledger: Database, tmp_path: Path) -> None:
    """Both files are whole, replace what was there, and the terminal says which."""
    sheet, page = tmp_path / "drift.csv", tmp_path / "drift.html"
    sheet.write_text("old")
    exit_code, text, told = type_in("show", DRIFTING, "--csv", str(sheet), "--html", str(page))
    assert exit_code == 3
    assert sheet.read_text().startswith("kind,subject,")
    assert "&lt;script&gt;" in page.read_text()
    assert "<script" not in page.read_text()
    assert told.count("written: ") == 2
    assert "\x1b" not in text + told
    assert "2 differences are open" in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--run RUN, or --since T"),
        (("--run", "r", "--since", "3d"), "--run RUN, or --since T"),
        (("--run", "r", "--until", "1d"), "go with --since"),
        (("--run", "r", "--account", "acct_1"), "go with --since"),
        (("--since", "3d", "--no-wait", "--csv", "x.csv"), "has no report to write"),
        (("--repair", "list"), "say them after it"),
        (("--since", "3d", "--html", "/none/such/drift.html"), "can't be written"),
        (("show", CLEAN, "--csv", "/none/such/drift.csv"), "can't be written"),
    ],
)
def test_what_can_not_be_meant_is_refused(ledger: Database, words: tuple[str, ...], told: str) -> None:
    """A usage error ends with 2, before anything is asked or started."""
    exit_code, stdout, stderr = type_in(*words)
    assert (exit_code, stdout) == (2, "")
    assert told in stderr
