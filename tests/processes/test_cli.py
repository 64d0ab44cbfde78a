import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from activities.ledger.clock import advance_clock, read_clock
from activities.ledger.migrate import migrate
from deploy.cli import app
from deploy.postgres import Database, PostgresServer
from tests.conftest import drive
from worker.__main__ import main as run_worker_process
from worker.cli import app as production_app
from worker.console_output import Output, table
from worker.durations import parse_duration_seconds
from worker.failures import without_secrets
from workflows.domain.errors import InvalidInput, RefusedToStart

SAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "samples" / "charges-2031-03.csv"
BAD = "customer,currency,amount\ncus_1,usd,1.234\n,eur,x\ncus_3,zzz,1\ncus_4,usd,5.00\n"


@pytest.fixture(autouse=True)
def nothing_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No ledger, no Stripe, no running stack."""
    monkeypatch.setenv("CHARGEONCE_HOME", str(tmp_path / "home"))
    for name in ("CHARGEONCE_DATABASE_URL", "STRIPE_SECRET_KEY", "CHARGEONCE_STRIPE_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)


def type_in(*words: str) -> tuple[int, str, str]:
    """Run a command line; its exit code, stdout and stderr."""
    result = CliRunner().invoke(app, [*words], prog_name="chargeonce")
    return result.exit_code, result.stdout, result.stderr


def type_json(*words: str) -> tuple[int, dict[str, Any]]:
    """Run a command line with --json; its exit code, and the one object on its stdout."""
    exit_code, stdout, _ = type_in(*words, "--json")
    assert stdout.count("\n") == 1
    document: dict[str, Any] = json.loads(stdout)
    return exit_code, document


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _commands(inner, (*path, name))
    else:
        yield path, command


@pytest.mark.parametrize(
    "path",
    [path for path, _ in _commands(typer.main.get_command(app)) if path[0] not in {"sim", "bench"}],
    ids=" ".join,
)
def test_every_command_has_help_with_an_example(path: tuple[str, ...]) -> None:
    """--help of every command answers with 0 and shows examples of that very command."""
    exit_code, stdout, _ = type_in(*path, "--help")
    assert exit_code == 0
    examples = stdout.partition("Examples:\n")[2].strip().splitlines()
    assert examples
    assert all(line.strip().startswith(f"chargeonce {' '.join(path)}") for line in examples)


def test_the_simulator_is_mounted() -> None:
    """`chargeonce sim` passes everything on to the simulator's own command line."""
    exit_code, stdout, _ = type_in("sim", "seed", "--help")
    assert exit_code == 0
    assert "chargeonce sim seed" in stdout


def test_production_commands_stand_alone() -> None:
    """Without the development layer there are the production commands and no others."""
    names = set(typer.main.get_command(production_app).commands)  # type: ignore[attr-defined]
    assert names == {
        "audit", "backfill", "explain", "export", "inbox", "migrate", "notifications", "proxy", "reconcile",
        "codec-server", "refund", "refunds", "resolve", "restore", "retry-policy", "review", "run",
        "schedule", "vault", "verify", "web", "worker",
    }  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ("run", "list"),
        ("run", "show", "billing-run/acct_1/2031-03"),
        ("run", "tick", "billing-run/acct_1/2031-03"),
        ("run", "start", "--period", "2031-03", "--source", str(SAMPLE), "--yes"),
        ("run", "start", "--period", "2031-03", "--source", str(SAMPLE)),
        ("verify", "billing-run/acct_1/2031-03"),
        ("explain", "cus_1"),
        ("reconcile", "--since", "3d"),
        ("reconcile", "list"),
        ("migrate",),
        ("clock", "show"),
        ("clock", "advance", "25h"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_with_nothing_running_commands_refuse(words: tuple[str, ...]) -> None:
    """With no stack and nothing configured, a command exits 4 and names `chargeonce dev`."""
    exit_code, stdout, stderr = type_in(*words)
    assert (exit_code, stdout) == (4, "")
    assert "chargeonce dev" in stderr
    assert stderr.count("\n") == 1
    exit_code, document = type_json(*words)
    assert exit_code == 4
    assert "chargeonce dev" in document["error"]


def test_every_bad_row_is_named_and_nothing_starts(tmp_path: Path) -> None:
    """All problems of a file are reported at once, each with its row, and the command exits 2."""
    source = tmp_path / "bad.csv"
    source.write_text(BAD)
    words = ("run", "start", "--period", "2031-03", "--source", str(source), "--yes")
    exit_code, stdout, stderr = type_in(*words)
    assert (exit_code, stdout) == (2, "")
    assert [line.partition(":")[0] for line in stderr.splitlines()[:4]] == [
        "row 2, column amount",
        "row 3, column customer",
        "row 3, column amount",
        "row 4, column currency",
    ]
    assert "--skip-invalid" in stderr
    exit_code, document = type_json(*words)
    assert exit_code == 2
    assert [problem["row"] for problem in document["problems"]] == [2, 3, 3, 4]


@pytest.mark.parametrize("rows", ["", "\n\n", ",usd,5.00\n"], ids=["header_only", "blank", "all_skipped"])
def test_a_file_without_a_line_to_bill_takes_no_period(tmp_path: Path, rows: str) -> None:
    """An empty export is a usage error, not a run of nobody that owns the month."""
    source = tmp_path / "charges.csv"
    source.write_text(f"customer,currency,amount\n{rows}")
    words = ("run", "start", "--period", "2031-03", "--source", str(source), "--yes", "--skip-invalid")
    exit_code, answer = type_json(*words)
    assert exit_code == 2
    assert "no line to bill" in answer["error"]
    assert answer["lines"] == 0


def test_a_closed_stdout_keeps_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """`>&-` leaves no stdout at all: what a command found out is then its exit code, and no error."""
    monkeypatch.setattr("sys.stdout", None)
    for as_json in (False, True):
        Output(as_json=as_json).result({"lines": 1}, lambda: ["a line"])


def test_a_text_is_printed_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    """A reason or the name of a source is no markup and holds no emoji, whatever it looks like."""
    Output(as_json=False).result({}, lambda: ["entry:key:march [bold]why"])
    assert capsys.readouterr().out == "entry:key:march [bold]why\n"


def test_what_others_wrote_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """Reasons, names and messages of failed work are shown as they are, and obeyed by no terminal."""
    hostile, shown = "a\x1b]0;x\x07\u202eb", "a\\x1b]0;x\\x07\\u202eb"
    output = Output(as_json=False)
    output.result({}, lambda: [hostile, table(("why",), [(hostile,)])])
    output.notice(f"{hostile}\nnext line")
    output.failure(hostile, {})
    out, err = capsys.readouterr()
    assert [line.strip() for line in out.splitlines()] == [shown, "why", shown]
    assert err == f"{shown}\nnext line\nchargeonce: {shown}\n"


def test_a_preview_adds_up_and_starts_nothing(tmp_path: Path) -> None:
    """With nothing configured --preview shows lines, sums per currency and skips of the file alone."""
    source = tmp_path / "bad.csv"
    source.write_text(BAD)
    words = ("run", "start", "--period", "2031-03", "--source", str(source), "--preview")
    assert type_json(*words)[0] == 2
    exit_code, document = type_json(*words, "--skip-invalid")
    assert exit_code == 0
    assert document["lines"] == 1
    assert document["skipped"] == {"can_not_be_billed": 3, "zero_amount": 0}
    assert document["totals"] == {"usd": {"lines": 1, "amount_minor": 500}}
    assert len(document["source_sha256"]) == 64


def test_a_file_that_lost_its_footing_is_never_billed(tmp_path: Path) -> None:
    """Broken quoting can't be skipped: where a row ends is then a guess."""
    source = tmp_path / "broken.csv"
    source.write_text('customer,currency,amount\ncus_1,usd,"5.00\ncus_2,usd,1.00\n')
    words = ("run", "start", "--period", "2031-03", "--source", str(source), "--yes", "--skip-invalid")
    exit_code, document = type_json(*words)
    assert exit_code == 2
    assert "a guess" in document["error"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--period", "2031-3", "--source", str(SAMPLE), "--yes"), "YYYY-MM"),
        (("--period", "2031-03", "--source", "/nowhere.csv", "--yes"), "No such file or directory"),
        (("--period", "2031-03", "--source", str(SAMPLE), "--yes", "--preview"), "say one"),
        (("--period", "2031-03", "--source", str(SAMPLE), "--yes", "--approve", "3f2a9c"), "say one"),
        (("--period", "2031-03", "--source", str(SAMPLE), "--wait"), "nobody is there to confirm"),
        (("--period", "2031-03", "--source", str(SAMPLE), "--yes", "--canary-max-declined", "2"), "--canary"),
        (("--period", "2031-03", "--source", "charges.xlsx", "--yes"), "no known kind"),
    ],
)
def test_wrong_usage_exits_2(words: tuple[str, ...], said: str) -> None:
    """A wrong period, a missing file, contradicting options, and nobody there to confirm are usage errors."""
    exit_code, document = type_json("run", "start", *words)
    assert exit_code == 2
    assert said in document["error"]


@pytest.mark.parametrize(
    "key",
    ["sk_live_synthetic", "rk_live_synthetic", " sk_live_synthetic", "sk_org_synthetic", "synthetic"],
)
def test_a_live_key_must_be_spoken_for(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """With anything but a test key and no --live nothing starts: exit code 4, and the key is not repeated."""
    monkeypatch.setenv("STRIPE_SECRET_KEY", key)
    monkeypatch.setenv("CHARGEONCE_DATABASE_URL", "postgresql://owner:hidden@127.0.0.1:1/ledger")
    exit_code, stdout, stderr = type_in(
        "run", "start", "--period", "2031-03", "--source", str(SAMPLE), "--yes"
    )
    assert (exit_code, stdout) == (4, "")
    assert "--live" in stderr
    assert "synthetic" not in stderr


def test_an_unreachable_ledger_is_one_line_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that does not answer is refused in one line, with no traceback and no password."""
    monkeypatch.setenv("STRIPE_SECRET_KEY", "sk_test_synthetic")
    monkeypatch.setenv("CHARGEONCE_DATABASE_URL", "postgresql://owner:hidden@127.0.0.1:1/ledger")
    for words in (("run", "list"), ("migrate",)):
        exit_code, stdout, stderr = type_in(*words)
        assert (exit_code, stdout) == (4, "")
        assert "can't be reached" in stderr
        assert "hidden" not in stderr
        assert stderr.count("\n") == 1


def test_a_wrong_setting_is_named_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that can't be right is named; its value, which may be a secret, is not."""
    monkeypatch.setenv("STRIPE_SECRET_KEY", "sk_test_synthetic")
    monkeypatch.setenv("CHARGEONCE_DATABASE_URL", "postgresql://127.0.0.1:1/ledger")
    monkeypatch.setenv("CHARGEONCE_RATE_PER_SECOND", "sk_test_in_the_wrong_place")
    exit_code, document = type_json("run", "list")
    assert exit_code == 4
    assert "CHARGEONCE_RATE_PER_SECOND" in document["error"]
    assert "wrong_place" not in document["error"]


def test_a_worker_that_lacks_a_setting_says_which_and_repeats_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`python -m worker` refuses in one line; a traceback of its settings would show a password."""
    monkeypatch.setenv("CHARGEONCE_DATABASE_URL", "postgresql://app:hunter2@127.0.0.1:1/ledger")
    assert run_worker_process() == 4
    assert capsys.readouterr().err == "neither CHARGEONCE_PROXY_URL nor STRIPE_SECRET_KEY is set\n"


def test_secrets_are_blanked_out() -> None:
    """API keys, webhook secrets and passwords of URLs never reach a terminal."""
    text = "sk_live_abc rk_test_def whsec_ghi postgresql://owner:p4ss@db/ledger"
    assert without_secrets(text) == "sk_live_*** rk_test_*** whsec_*** postgresql://owner:***@db/ledger"
    assert without_secrets(f"vk_test_0123456789{'A' * 43} vk_live_9876543210") == (
        "vk_test_0123456789*** vk_live_9876543210"
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("25h", 90_000), ("3d", 259_200), ("1h30m", 5_400)]
)
def test_durations_are_read(text: str, seconds: int) -> None:
    """Durations are numbers with units, one after the other."""
    assert parse_duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "25", "h", "-1h", "1e3s", "٣h", "1h 30m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(InvalidInput, match="no duration"):
        parse_duration_seconds(text)


async def test_the_ledgers_clock_moves_forwards_alone(database: Database) -> None:
    """A movable clock moves on by what was asked, workers can read it, and it never goes back."""
    before = await read_clock(database.app_url)
    after = await advance_clock(database.owner_url, 90_000)
    assert after.offset_seconds == before.offset_seconds + 90_000
    assert 90_000 <= (after.now - before.now).total_seconds() < 90_060
    with pytest.raises(InvalidInput, match="forwards"):
        await advance_clock(database.owner_url, -1)


def test_a_production_clock_can_not_be_moved(postgres_server: PostgresServer) -> None:
    """A ledger that was not made movable refuses to move, and says so."""

    async def play() -> None:
        database = await postgres_server.create_database("ledger_of_production")
        await migrate(database.owner_url)
        with pytest.raises(RefusedToStart, match="can't be moved"):
            await advance_clock(database.owner_url, 60)
        await postgres_server.drop_database("ledger_of_production")

    drive(play())
