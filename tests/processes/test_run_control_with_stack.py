"""The commands by which people decide about a run, against a whole stack of processes."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.stack_info import load_stack
from tests.forking import Nursery
from tests.processes.test_cli_with_stack import Terminal, Words, open_terminal
from worker.temporal_client import connect_temporal

pytestmark = pytest.mark.timeout(240)

LINES, CANARY = 60, 10
DEADLINE_SECONDS = 60.0
OTHER_HASH = "f" * 64
WHY = ("--reason", "a good reason")


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Iterator[Terminal]:
    """`chargeonce dev` in one terminal, and another terminal beside it."""
    with open_terminal(tmp_path_factory.mktemp("home"), nursery) as terminal:
        yield terminal


@pytest.fixture(scope="module")
def source(terminal: Terminal) -> Path:
    """A file of customers whom the simulator knows."""
    return terminal.seed(LINES)


def start(period: str, source: Path) -> Words:
    """Return the words that start a run whose canary is held until somebody has looked."""
    words = ("run", "start", "--period", period, "--source", str(source))
    return (*words, "--slice-size", "20", "--canary", str(CANARY))


def show_once(terminal: Terminal, run: str, **wanted: Any) -> dict[str, Any]:
    """Show a run until it is as wanted, and return it. Fails after 60 s."""
    until = time.monotonic() + DEADLINE_SECONDS
    while True:
        exit_code, shown = terminal.type_json("run", "show", run)
        # `run start --yes` does not wait for the run's workflow, which takes the period.
        has_begun = "there is no run" not in shown.get("error", "")
        if has_begun:
            assert exit_code == 0, shown
            assert shown["lines"] == sum(shown[name] for name in COUNTS), shown
        if has_begun and all(shown[name] == value for name, value in wanted.items()):
            return shown
        assert time.monotonic() < until, shown


COUNTS = (
    "succeeded", "processing", "declined", "needs_customer", "refused", "review", "canceled", "skipped",
    "taken_over", "unknown", "not_started",
)  # fmt: skip


def actions(terminal: Terminal, run: str) -> list[str]:
    """Return what was decided about a run, in order; whoever decided it said why."""
    exit_code, document = terminal.type_json("run", "events", run)
    assert exit_code == 0
    assert all(event["who"] and event["reason"] for event in document["events"])
    return [event["action"] for event in document["events"]]


def test_a_run_is_approved_paused_and_resumed(terminal: Terminal, source: Path) -> None:
    """A stale hash changes nothing, a pause outlasts the canary's hold, and counts are whole all the time."""
    exit_code, planned = terminal.type_json(*start("2031-03", source))
    assert (exit_code, planned["phase"]) == (0, "planned")
    run = "billing-run/acct_sim/2031-03"
    shown = show_once(terminal, run, phase="planned", not_started=LINES)

    exit_code, refused = terminal.type_json("run", "approve", run, "--hash", OTHER_HASH, *WHY)
    assert exit_code == 4
    assert shown["plan_hash"] in refused["error"]
    assert OTHER_HASH in refused["error"]
    exit_code, _ = terminal.type_json("run", "approve", run, "--hash", shown["plan_hash"], *WHY)
    assert exit_code == 0

    show_once(terminal, run, hold="canary", succeeded=CANARY, not_started=LINES - CANARY)
    for _ in range(2):
        exit_code, paused = terminal.type_json("run", "pause", run, *WHY, "--who", "on-call")
        assert (exit_code, paused["hold"], paused["not_started"]) == (0, "paused", LINES - CANARY)
        assert paused["lines"] == LINES == paused["settled"] + paused["in_flight"] + paused["not_started"]
    exit_code, resumed = terminal.type_json("run", "resume", run, *WHY)
    assert (exit_code, resumed["hold"], resumed["canary_waits"]) == (0, None, False)
    assert show_once(terminal, run, phase="closed")["succeeded"] == LINES
    assert actions(terminal, run) == [
        "planned", "approved", "canary_held", "paused", "canary_released", "closed",
    ]  # fmt: skip
    exit_code, late = terminal.type_json("run", "pause", run, *WHY)
    assert exit_code == 4
    assert late["error"] == f"nothing has changed: {run} has ended (closed)"


def test_a_run_is_canceled(terminal: Terminal, source: Path) -> None:
    """What was paid stays paid, the rest is canceled, and the run closes with who and why."""
    run = "billing-run/acct_sim/2031-04"
    assert terminal.type_json(*start("2031-04", source), "--yes")[0] == 0
    show_once(terminal, run, hold="canary")
    exit_code, canceling = terminal.type_json("run", "cancel", run, "--reason", "wrong list", "--who", "ops")
    assert (exit_code, canceling["canceling"]) == (0, True)
    closed = show_once(terminal, run, phase="closed")
    assert closed["reason"] == "canceled by ops: wrong list"
    assert (closed["succeeded"], closed["canceled"]) == (CANARY, LINES - CANARY)
    assert actions(terminal, run) == ["planned", "approved", "canary_held", "cancel_requested", "closed"]


def test_a_run_whose_workflow_was_terminated_is_recovered(terminal: Terminal, source: Path) -> None:
    """While it runs there is nothing to recover; then a new workflow goes on, held as it was."""
    run = "billing-run/acct_sim/2031-05"
    assert terminal.type_json(*start("2031-05", source), "--yes")[0] == 0
    show_once(terminal, run, hold="canary")
    exit_code, refused = terminal.type_json("run", "recover", run, *WHY)
    assert exit_code == 4
    assert "nothing to recover" in refused["error"]
    asyncio.run(terminate(terminal, run))
    assert show_once(terminal, run, hold="canary")["workflow"]["state"] == "lost"
    exit_code, lost = terminal.type_json("run", "resume", run, *WHY)
    assert exit_code == 4
    assert "run recover" in lost["error"]
    exit_code, recovering = terminal.type_json("run", "recover", run, *WHY)
    assert (exit_code, recovering["run"]) == (0, run)
    decide_once(terminal, "resume", run)
    assert show_once(terminal, run, phase="closed")["succeeded"] == LINES
    assert actions(terminal, run) == [
        "planned", "approved", "canary_held", "recovered", "canary_released", "closed",
    ]  # fmt: skip
    assert terminal.type_json("verify", run)[0] == 0
    exit_code, book = terminal.type_json("sim", "book", "--identity", "chargeonce_charge")
    assert (exit_code, book["double_charges"]) == (0, [])
    assert terminal.type_json("run", "recover", run, *WHY)[0] == 4


def decide_once(terminal: Terminal, decision: str, run: str) -> None:
    """Decide, as soon as the run's new workflow has its period and takes decisions."""
    until = time.monotonic() + DEADLINE_SECONDS
    while terminal.type_json("run", decision, run, *WHY)[0] != 0:
        assert time.monotonic() < until


async def terminate(terminal: Terminal, run: str) -> None:
    """End a run's workflow as an operator does who knows no better."""
    stack = load_stack(terminal.home)
    assert stack is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEMPORAL_ADDRESS", stack.temporal_address)
        client = await connect_temporal()
        await client.get_workflow_handle(run).terminate("by hand")


def test_a_mistyped_run_is_told_as_such(terminal: Terminal) -> None:
    """An unknown id is not taken for a lost workflow."""
    exit_code, refused = terminal.type_json("run", "pause", "billing-run/nothing", *WHY)
    assert exit_code == 4
    assert "there is no run" in refused["error"]
