"""The command line against a simulator in a process of its own."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from deploy.stripe_sim.cli import app

COMMAND = [sys.executable, "-m", "deploy.stripe_sim"]


def run(*arguments: str, url: str | None = None) -> Result:
    """Run one command to its end."""
    return CliRunner().invoke(app, arguments, env={"STRIPE_SIM_URL": url}, catch_exceptions=False)


def read_json(*arguments: str, url: str) -> Any:
    """Run a command that must succeed and return its JSON."""
    done = run(*arguments, "--json", url=url)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A simulator process with a fault plan; it must stop by SIGTERM, quickly and with exit code 0."""
    plan = tmp_path / "plan.json"
    plan.write_text('{"faults": [{"name": "start", "match": {"nth": 1000}, "effect": {"kind": "drop"}}]}')
    ready = tmp_path / "ready.json"
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", "--seed", "5", "--ready-file", str(ready), "--faults", str(plan)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = json.loads(ready.read_text())["url"]
    assert found in line
    yield found
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0
    process.stdout.close()


def test_every_client_command(url: str, tmp_path: Path) -> None:
    """Seeding, faults, clock, book and journal work through the command line, as text and as JSON."""
    source = tmp_path / "charges.csv"
    source.write_bytes(
        b"\xef\xbb\xbfcustomer;amount;payment_method\r\ncus_a;10.00;\r\ncus_b;5.00;pm_card_chargeCustomerFail_b\r\n"
        b"cus_a;7.00;\r\n;1.00;\r\n"
    )
    assert read_json("seed", str(source), url=url) == {"rows": 3, "customers": 2, "payment_methods": 2}
    assert read_json("seed", str(source), url=url) == {"rows": 3, "customers": 0, "payment_methods": 0}
    assert [fault["name"] for fault in read_json("faults", "show", url=url)["faults"]] == ["start"]
    plan = tmp_path / "other.json"
    plan.write_text('[{"name": "other", "effect": {"kind": "delay", "seconds": 0.1}}]')
    assert [fault["name"] for fault in read_json("faults", "set", str(plan), url=url)["faults"]] == ["other"]
    assert read_json("faults", "clear", url=url)["faults"] == []
    before = read_json("clock", "show", url=url)["now"]
    after = read_json("clock", "advance", "25h", url=url)["now"]
    assert 0 <= after - before - 25 * 3_600 < 60
    assert read_json("book", url=url)["double_charges"] == []
    assert read_json("journal", url=url) == {"requests": [], "total": 0}
    text = run("book", url=url)
    assert "double charges: 0" in text.stdout


def test_without_a_url_commands_refuse() -> None:
    """A command that finds no simulator named exits 4 and says what to do."""
    done = run("book")
    assert done.exit_code == 4
    assert "STRIPE_SIM_URL" in done.stderr


def test_a_wrong_plan_stops_the_start(tmp_path: Path) -> None:
    """A simulator does not start with a plan that it cannot read."""
    plan = tmp_path / "plan.json"
    plan.write_text("[{}]")
    done = run("--port", "0", "--faults", str(plan))
    assert done.exit_code == 4
    assert "a fault needs a name" in done.stderr


def test_kill_loses_at_most_what_was_not_flushed(tmp_path: Path) -> None:
    """After kill -9 and a restart, everything older than the flush interval is there."""
    state = tmp_path / "state"
    source = tmp_path / "charges.csv"
    source.write_text("customer\ncus_a\n")
    log = state / "stripe_sim.jsonl"
    command = [*COMMAND, "--port", "0", "--state-dir", str(state)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = process.stdout.readline().split()[3]
    assert run("seed", str(source), url=found).exit_code == 0
    deadline = time.monotonic() + 10
    while b"cus_a" not in log.read_bytes():
        assert time.monotonic() < deadline
    process.kill()
    process.wait(timeout=10)
    process.stdout.close()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = process.stdout.readline().split()[3]
    assert json.loads(run("seed", str(source), "--json", url=found).stdout)["customers"] == 0
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == 0
    process.stdout.close()


@pytest.mark.parametrize(
    "command",
    [[], ["seed"], ["book"], ["journal"], ["faults", "show"], ["faults", "set"], ["clock", "advance"]],
)
def test_help_has_examples(command: list[str]) -> None:
    """Every command explains itself with an example."""
    done = run(*command, "--help")
    assert done.exit_code == 0
    assert "Example" in done.stdout
