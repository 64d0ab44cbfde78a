import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.forking import CHECKOUT, Nursery

LINES = 120
Words = tuple[str, ...]

pytestmark = pytest.mark.timeout(240)


class Terminal:
    """A shell in which CHARGEONCE_HOME is set and a stack runs. With a nursery, commands start at once."""

    def __init__(self, home: Path, nursery: Nursery | None = None) -> None:
        self.home = home
        self._nursery = nursery
        unwanted = ("CHARGEONCE_", "STRIPE_", "TEMPORAL_")
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(unwanted)
        } | {"CHARGEONCE_HOME": str(home)}

    def open(self, *words: str) -> "subprocess.Popen[str]":
        """Start `chargeonce` and let it run."""
        return subprocess.Popen(
            [sys.executable, "-m", "deploy.cli", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
            env=self.environment,
        )

    def type_json(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Run `chargeonce ... --json`; its exit code and the one object on its stdout."""
        if self._nursery is None:
            return finish(self.open(*words, "--json"))
        typed = self._nursery.type_command([*words, "--json"], environment=self.environment)
        return typed.returncode, read_object(typed.stdout, typed.stderr)

    def answer(self, typed: str, *words: str) -> tuple[int, str]:
        """Run `chargeonce` with somebody at the keyboard; its exit code and all that they saw on stderr."""
        ours, theirs = pty.openpty()
        try:
            os.write(ours, typed.encode())
            done = subprocess.run(
                [sys.executable, "-m", "deploy.cli", *words], check=False, timeout=120,
                stdin=theirs, capture_output=True, text=True, cwd=CHECKOUT, env=self.environment,
            )  # fmt: skip
        finally:
            os.close(theirs)
            os.close(ours)
        return done.returncode, done.stderr

    def start(self, period: str, source: Path) -> Words:
        """Return the words that start a run and wait for it."""
        return ("run", "start", "--period", period, "--source", str(source), "--yes", "--wait")

    def seed(self, lines: int, *more: str) -> Path:
        """Write a file of customers with as many good cards, and of `more` rows; the simulator knows them."""
        path = self.home / "charges.csv"
        rows = [f"cus_c{number},usd,{number}.50,pm_card_visa_c{number}" for number in range(1, lines + 1)]
        header = "customer,currency,amount,payment_method"
        path.write_text("".join(f"{row}\n" for row in (header, *rows, *more)))
        exit_code, document = self.type_json("sim", "seed", str(path))
        assert (exit_code, document["customers"]) == (0, lines + len(more))
        return path


@contextmanager
def open_terminal(home: Path, nursery: Nursery) -> Iterator[Terminal]:
    """Yield a terminal beside another in which `chargeonce dev` runs, until Ctrl-C is typed there."""
    terminal = Terminal(home, nursery)
    dev = terminal.open("dev", "--headless", "--timing", "tests", "--rate", "100", "--json")
    assert dev.stdout is not None
    dev.stdout.readline()
    yield terminal
    dev.send_signal(signal.SIGINT)
    dev.communicate(timeout=60)
    assert dev.returncode == 0


def finish(process: "subprocess.Popen[str]") -> tuple[int, dict[str, Any]]:
    """Wait for a command with --json; its exit code and the one object on its stdout."""
    stdout, stderr = process.communicate(timeout=120)
    return process.returncode, read_object(stdout, stderr)


def read_object(stdout: str, stderr: str) -> dict[str, Any]:
    """Return the one object that a command with --json printed."""
    assert stdout.count("\n") == 1, (stdout, stderr)
    assert "Traceback" not in stderr
    document: dict[str, Any] = json.loads(stdout)
    return document


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Iterator[Terminal]:
    """`chargeonce dev` in one terminal, and another terminal beside it."""
    terminal = Terminal(tmp_path_factory.mktemp("home"), nursery)
    dev = terminal.open("dev", "--headless", "--timing", "tests", "--rate", "100", "--json")
    assert dev.stdout is not None
    up = dev.stdout.readline()
    assert json.loads(up)["simulator"].startswith("http://127.0.0.1:")
    yield terminal
    dev.send_signal(signal.SIGINT)
    rest, notices = dev.communicate(timeout=60)
    assert (dev.returncode, rest) == (0, "")
    assert "stopping" in notices
    assert "stopped" in notices


@pytest.fixture(scope="module")
def source(terminal: Terminal) -> Path:
    """A file of customers whom the simulator knows."""
    return terminal.seed(LINES)


def test_two_starts_make_one_run(terminal: Terminal, source: Path) -> None:
    """Of two processes that start the same period at once, one bills everyone and the other names its run."""
    words = (*terminal.start("2031-03", source), "--json")
    first, second = terminal.open(*words), terminal.open(*words)
    (code_0, winner), (code_4, loser) = sorted((finish(first), finish(second)), key=lambda end: end[0])
    assert (code_0, code_4) == (0, 4), (winner, loser)
    assert loser["run"] == winner["run"] == "billing-run/acct_sim/2031-03"
    assert loser["refused"]
    assert "chargeonce run show" in loser["error"]
    assert (winner["phase"], winner["lines"], winner["succeeded"]) == ("closed", LINES, LINES)
    assert winner["settings"]["rate_per_second"] == 100
    assert winner["settings"]["simulator"]["endpoint_rate_per_second"] == 0
    assert winner["totals"]["usd"]["amount_minor"] == sum(number * 100 + 50 for number in range(1, LINES + 1))

    exit_code, again = terminal.type_json(*terminal.start("2031-03", source))
    assert (exit_code, again["run"], again["phase"]) == (4, winner["run"], "closed")
    assert "run start --again" in again["error"]
    exit_code, nothing = terminal.type_json(*terminal.start("2031-03", source), "--again")
    assert (exit_code, nothing["run"], nothing["phase"]) == (0, f"{winner['run']}/r2", "closed")
    assert nothing["reason"] == f"nothing is due: {LINES} lines charged by run {winner['run']}"
    exit_code, proof = terminal.type_json("verify", winner["run"])
    assert (exit_code, proof["verify"]) == (0, "clean")
    exit_code, shown = terminal.type_json("run", "show", winner["run"])
    assert (exit_code, shown["succeeded"], shown["waiting"]) == (0, LINES, [])
    exit_code, listed = terminal.type_json("run", "list")
    assert winner["run"] in [run["run"] for run in listed["runs"]]
    exit_code, story = terminal.type_json("explain", "cus_c7/base", "--run", winner["run"])
    assert (exit_code, story["state"]) == (0, "succeeded")
    exit_code, book = terminal.type_json("sim", "book", "--identity", "chargeonce_charge")
    assert (exit_code, book["double_charges"]) == (0, [])


def test_what_waits_is_counted_and_settles_after_the_window(terminal: Terminal, source: Path) -> None:
    """Stored 500s end the wait with exit 1 and unknown lines; past the window one tick settles them all."""
    plan = terminal.home / "faults.json"
    fault = {
        "name": "stored",
        "match": {"nth": 30},
        "effect": {"kind": "error", "status": 500, "stored": True},
    }
    plan.write_text(json.dumps({"faults": [fault]}))
    assert terminal.type_json("sim", "faults", "set", str(plan))[0] == 0
    exit_code, waits = terminal.type_json(*terminal.start("2031-04", source))
    assert (exit_code, waits["phase"]) == (1, "settling")
    assert waits["unknown"] > 0
    assert waits["unknown"] + waits["succeeded"] == LINES
    assert waits["next_due"] is not None
    assert terminal.type_json("verify", waits["run"])[0] == 0
    exit_code, shown = terminal.type_json("run", "show", waits["run"])
    assert sum(row["lines"] for row in shown["waiting"]) == waits["unknown"]
    assert shown["workflow"]["phase"] == "settle"

    assert terminal.type_json("sim", "faults", "clear")[0] == 0
    exit_code, clock = terminal.type_json("clock", "advance", "25h")
    assert exit_code == 0
    assert clock["apart_seconds"] < 1
    exit_code, settled = terminal.type_json("run", "tick", waits["run"], "--wait")
    assert (exit_code, settled["phase"], settled["succeeded"]) == (0, "closed", LINES)
    exit_code, again = terminal.type_json("run", "tick", waits["run"])
    assert (exit_code, again["phase"]) == (0, "closed")


def test_a_plan_waits_for_the_approval_of_its_hash(terminal: Terminal, source: Path) -> None:
    """A preview and the run agree on a hash; nobody is charged before that very hash is approved."""
    words = ("run", "start", "--period", "2031-08", "--source", str(source))
    exit_code, preview = terminal.type_json(*words, "--preview")
    assert (exit_code, preview["lines"], preview["totals"]["usd"]["lines"]) == (0, LINES, LINES)
    exit_code, planned = terminal.type_json(*words)
    assert (exit_code, planned["phase"], planned["plan_hash"]) == (0, "planned", preview["plan_hash"])
    assert planned["approve_with"].startswith(f"chargeonce run approve {planned['run']} --hash ")
    exit_code, shown = terminal.type_json("run", "show", planned["run"])
    assert (exit_code, shown["succeeded"], shown["plan"]["totals"]) == (0, 0, preview["totals"])
    assert terminal.type_json(*words)[0] == 4
    approve = ("run", "approve", planned["run"], "--reason", "the sums are right", "--hash")
    assert terminal.type_json(*approve, "3f2a9c")[0] == 4
    assert terminal.type_json(*approve, planned["plan_hash"])[0] == 0
    exit_code, closed = terminal.type_json("run", "tick", planned["run"], "--wait")
    assert (exit_code, closed["phase"], closed["succeeded"]) == (0, "closed", LINES)
    exit_code, shown = terminal.type_json("run", "show", planned["run"])
    compared = shown["report"]["plan_versus_actual"]
    assert (compared["adds_up"], compared["currencies"]["usd"]["charged_lines"]) == (True, LINES)


def test_only_the_plan_that_was_approved_beforehand_is_charged(terminal: Terminal, source: Path) -> None:
    """A run whose plan has another hash waits; once it is canceled, the next may charge its own."""
    words = ("run", "start", "--period", "2031-09", "--source", str(source))
    exit_code, waiting = terminal.type_json(*words, "--approve", "3f2a9c")
    assert (exit_code, waiting["phase"], waiting["run"]) == (4, "planned", "billing-run/acct_sim/2031-09")
    assert waiting["plan_hash"] in waiting["error"]
    assert terminal.type_json("run", "cancel", waiting["run"], "--reason", "the wrong hash")[0] == 0
    exit_code, canceled = terminal.type_json("run", "tick", waiting["run"], "--wait")
    assert (exit_code, canceled["phase"], canceled["canceled"]) == (0, "closed", LINES)
    exit_code, done = terminal.type_json(*words, "--approve", waiting["plan_hash"], "--wait")
    assert (exit_code, done["run"], done["succeeded"]) == (0, f"{waiting['run']}/r2", LINES)
    exit_code, earlier = terminal.type_json("run", "show", waiting["run"])
    assert (exit_code, earlier["taken_over"], earlier["canceled"]) == (0, LINES, 0)


def test_somebody_at_a_terminal_is_asked_before_anything_starts(terminal: Terminal, source: Path) -> None:
    """No leaves no run behind; yes charges the plan that was on the screen."""
    words = ("run", "start", "--period", "2031-10", "--source", str(source), "--wait")
    exit_code, seen = terminal.answer("n\n", *words)
    assert exit_code == 2
    assert "plan hash: " in seen
    assert f"Charge {LINES} lines" in seen
    assert "nothing was started" in seen
    runs = terminal.type_json("run", "list")[1]["runs"]
    assert not [run for run in runs if run["run"].endswith("/2031-10")]
    exit_code, seen = terminal.answer("y\n", *words)
    assert exit_code == 0
    exit_code, shown = terminal.type_json("run", "show", "billing-run/acct_sim/2031-10")
    assert (shown["phase"], shown["succeeded"]) == ("closed", LINES)
    assert f"plan hash: {shown['plan_hash']}" in seen


def test_planning_that_can_not_go_on_says_why(terminal: Terminal, source: Path) -> None:
    """While Stripe does not say how a customer pays, the wait names the reason; then the run goes on."""
    unpaid = terminal.home / "without_cards.csv"
    unpaid.write_text("customer,currency,amount\ncus_c1,usd,1.00\n")
    plan = terminal.home / "planning.json"
    fault = {
        "name": "mute",
        "match": {"method": "GET", "path": "^/v1/customers"},
        "effect": {"kind": "error", "status": 500},
    }
    plan.write_text(json.dumps({"faults": [fault]}))
    assert terminal.type_json("sim", "faults", "set", str(plan))[0] == 0
    waiting = terminal.open(*terminal.start("2031-07", unpaid))
    assert waiting.stderr is not None
    for notice in waiting.stderr:
        if "tried again until it works" in notice:
            assert "Stripe does not say how cus_c1 pays" in notice
            break
    else:
        pytest.fail("the wait ended without a reason")
    assert terminal.type_json("sim", "faults", "clear")[0] == 0
    waiting.communicate(timeout=60)
    assert waiting.returncode == 0


def test_ctrl_c_leaves_the_run_alone(terminal: Terminal, source: Path) -> None:
    """Ctrl-C ends the waiting and not the run, and says so."""
    plan = terminal.home / "slow.json"
    slow = {
        "name": "slow",
        "match": {"path": "^/v1/payment_intents"},
        "effect": {"kind": "delay", "seconds": 3},
    }
    plan.write_text(json.dumps({"faults": [slow]}))  # or the run might end before the signal arrives
    assert terminal.type_json("sim", "faults", "set", str(plan))[0] == 0
    waiting = terminal.open(*terminal.start("2031-05", source))
    assert waiting.stderr is not None
    assert waiting.stderr.readline() == "started billing-run/acct_sim/2031-05\n"
    waiting.send_signal(signal.SIGINT)
    _, notices = waiting.communicate(timeout=60)
    assert terminal.type_json("sim", "faults", "clear")[0] == 0
    assert waiting.returncode == 1
    assert "the run goes on without this command: chargeonce run show billing-run/acct_sim/2031-05" in notices
    assert "Traceback" not in notices
    assert terminal.type_json(*terminal.start("2031-05", source))[0] == 4


def test_rows_that_can_not_be_billed_are_recorded_as_skipped(terminal: Terminal, source: Path) -> None:
    """--skip-invalid bills the rest; the skipped rows are counted, and the counts add up."""
    bad = terminal.home / "bad.csv"
    rows = ("cus_c1,usd,1.00,pm_card_visa_c1", "cus_c2,usd,1.234,", ",usd,1.00,", "cus_c3,usd,0,")
    bad.write_text("customer,currency,amount,payment_method\n" + "\n".join(rows) + "\n")
    exit_code, document = terminal.type_json(*terminal.start("2031-06", bad), "--skip-invalid")
    assert exit_code == 0
    assert (document["lines"], document["succeeded"], document["skipped"]) == (4, 1, 3)
    assert {(row["reason"], row["lines"]) for row in document["reasons"]} == {
        ("can_not_be_billed", 2),
        ("zero_amount", 1),
    }


def test_a_demo_kills_a_worker_and_proves_the_promise(tmp_path: Path) -> None:
    """The demo kills a worker halfway and ends with 0 double charges and 0 lost, by the simulator's book."""
    exit_code, proof = Terminal(tmp_path).type_json("demo", "--customers", "60")
    assert exit_code == 0
    assert (proof["double_charges"], proof["lost"], proof["verify"]) == (0, 0, "clean")
    assert proof["kills"] == 1
    assert proof["succeeded"] + proof["declined"] + proof["needs_customer"] == proof["lines"] > 0
    assert proof["wire_requests"] >= 2 * proof["lines"]
    assert proof["money_matches"] is True
    assert not (tmp_path / "stack.json").exists()
