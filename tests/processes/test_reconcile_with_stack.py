"""`chargeonce reconcile` as somebody types it, against a whole stack of processes."""

import base64
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from deploy.stack_info import load_stack
from tests.forking import Nursery
from tests.processes.test_cli_with_stack import Terminal, open_terminal

pytestmark = pytest.mark.timeout(240)

LINES = 30
RUN = "billing-run/acct_sim/2031-03"
DEADLINE_SECONDS = 60.0


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Iterator[Terminal]:
    """`chargeonce dev` in one terminal, and another terminal beside it, with a run that has closed."""
    with open_terminal(tmp_path_factory.mktemp("home"), nursery) as terminal:
        path = terminal.seed(LINES)
        assert terminal.type_json(*terminal.start("2031-03", path))[0] == 0
        yield terminal


@contextmanager
def nobody_working(terminal: Terminal) -> Iterator[None]:
    """A stack whose worker stands still, so that what is started stays under way."""
    stack = load_stack(terminal.home)
    assert stack is not None
    [worker] = stack.workers
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker.pid, signal.SIGCONT)


def ask_stripe(terminal: Terminal, method: str, path: str, **fields: str) -> dict[str, Any]:
    """Ask the simulator something with the account's own key, as somebody with a terminal could."""
    stack = load_stack(terminal.home)
    assert stack is not None
    key = base64.b64encode(f"{stack.stripe_secret_key}:".encode()).decode()
    request = Request(
        f"{stack.stripe_sim_url}{path}",
        data=urlencode(fields).encode() if fields else None,
        headers={"Authorization": f"Basic {key}"},
        method=method,
    )
    with urlopen(request, timeout=10) as answer:
        document: dict[str, Any] = json.load(answer)
    return document


def closed_once(terminal: Terminal, count: int) -> None:
    """Wait until so many reconciliations of the run have closed."""
    until = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < until:
        listed = terminal.type_json("reconcile", "list")[1]["reconciliations"]
        if len([one for one in listed if one["run"] == RUN and one["phase"] == "closed"]) >= count:
            return
    pytest.fail("it has not closed")


def test_one_at_a_time_and_each_sees_what_was_done_before(terminal: Terminal) -> None:
    """Of a run one is under way; another says so, or waits for it, and Ctrl-C ends the command alone."""
    with nobody_working(terminal):
        exit_code, started = terminal.type_json("reconcile", "--run", RUN, "--no-wait")
        assert (exit_code, started["started"]) == (0, f"reconcile/{RUN}")
        exit_code, refused = terminal.type_json("reconcile", "--run", RUN, "--no-wait")
        assert exit_code == 4
        assert "is under way already, so nothing was started" in refused["error"]
        waiting = terminal.open("reconcile", "--run", RUN, "--json")
        assert waiting.stderr is not None
        assert "this one begins after it" in waiting.stderr.readline()
        other = terminal.open("reconcile", "--since", "1d", "--json")
        assert other.stderr is not None
        assert "is one running (`chargeonce worker`)?" in other.stderr.readline()
        other.send_signal(signal.SIGINT)
        _, told = other.communicate(timeout=30)
        assert other.returncode == 1
        assert "reconcile/acct_sim goes on without this command" in told
    stdout, _ = waiting.communicate(timeout=90)
    document = json.loads(stdout)
    assert (waiting.returncode, document["verdict"], document["report"]["charges"]) == (0, "clean", LINES)
    assert document["reconciliation"] == f"reconcile/{RUN}/2"
    closed_once(terminal, 2)


def test_a_run_at_work_can_be_reconciled(terminal: Terminal) -> None:
    """What it has in flight is its own, nothing is found, and the command says that there is more to come."""
    run = "billing-run/acct_sim/2031-04"
    source = str(terminal.home / "charges.csv")
    words = ("run", "start", "--period", "2031-04", "--source", source, "--canary", "5", "--yes")
    assert terminal.type_json(*words)[0] == 0
    until = time.monotonic() + DEADLINE_SECONDS
    while terminal.type_json("run", "show", run)[1].get("hold") != "canary":
        assert time.monotonic() < until
    reconciling = terminal.open("reconcile", "--run", run, "--json")
    stdout, told = reconciling.communicate(timeout=90)
    document = json.loads(stdout)
    assert (reconciling.returncode, document["verdict"], document["report"]["charges"]) == (0, "clean", 5)
    assert f"{run} is at work (phase charging): what it has in flight stays its own" in told
    assert terminal.type_json("run", "resume", run, "--reason", "looks right")[0] == 0
    assert terminal.type_json("run", "tick", run, "--wait")[0] == 0


def test_a_duplicate_is_found_with_the_command_that_refunds_it(terminal: Terminal) -> None:
    """Exit code 3, the same in every form, and nothing that moves money is repaired by itself."""
    _, story = terminal.type_json("explain", "cus_c7/base", "--run", RUN)
    first = ask_stripe(terminal, "GET", f"/v1/payment_intents/{story['payment_intent']}")
    again = ask_stripe(
        terminal, "POST", "/v1/payment_intents", amount="750", currency="usd", customer="cus_c7",
        payment_method=first["payment_method"], confirm="true", off_session="true",
        **{f"metadata[{name}]": value for name, value in first["metadata"].items()},
    )  # fmt: skip
    sheet, page = terminal.home / "drift.csv", terminal.home / "drift.html"
    exit_code, found = terminal.type_json(
        "reconcile",
        "--since",
        "1d",
        "--repair",
        "--reason",
        "a look",
        "--csv",
        str(sheet),
        "--html",
        str(page),
    )
    assert (exit_code, found["verdict"], found["reason"]) == (3, "drift", "a look")
    [duplicate] = found["drift"]
    assert (duplicate["kind"], duplicate["subject"]) == ("duplicate", again["id"])
    command = f"chargeonce refund {story['charge_id']} --payment-intent {again['id']} --amount 7.50"
    assert duplicate["command"] == f"{command} --reason duplicate"
    assert command in page.read_text()
    assert command in sheet.read_text()
    exit_code, shown = terminal.type_json("reconcile", "show", found["reconciliation"])
    assert (exit_code, shown["drift"][0]["subject"]) == (3, again["id"])
    words = duplicate["command"].split()[1:]
    assert terminal.type_json(*words, "--yes")[0] == 0
    exit_code, clean = terminal.type_json("reconcile", "--since", "1d")
    assert (exit_code, clean["verdict"]) == (0, "clean")


@pytest.mark.parametrize(
    ("words", "exit_code", "told"),
    [
        (("--run", "billing-run/acct_sim/1999-01"), 4, "there is no run"),
        (("--since", "3d", "--account", "acct_other"), 4, "the ledger has no run of 'acct_other'"),
        (("--since", "soon"), 2, "neither an age"),
        (("--since", "2999-01-01"), 2, "still to come"),
        (("--since", "1d", "--until", "2d"), 2, "not after --since"),
        (("--since", "1d", "--reason", " "), 2, "--reason is empty"),
    ],
)
def test_what_can_not_be_reconciled_is_refused(
    terminal: Terminal, words: tuple[str, ...], exit_code: int, told: str
) -> None:
    """Nothing is started for a run that there is not, or a span that can't be."""
    code, document = terminal.type_json("reconcile", *words)
    assert code == exit_code
    assert told in document["error"]
