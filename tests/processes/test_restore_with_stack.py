"""`chargeonce restore` as somebody types it, against a whole stack with its proxy."""

import time
from collections.abc import Iterator

import pytest

from tests.forking import Nursery
from tests.processes.test_cli_with_stack import Terminal, open_terminal

pytestmark = pytest.mark.timeout(240)

LINES, CANARY = 30, 5
RUN = "billing-run/acct_sim/2031-03"
DEADLINE_SECONDS = 60.0


@pytest.fixture
def terminal(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Iterator[Terminal]:
    """`chargeonce dev` in one terminal, and another terminal beside it, with a run behind its canary."""
    with open_terminal(tmp_path_factory.mktemp("home"), nursery) as terminal:
        path = terminal.seed(LINES)
        words = ("--period", "2031-03", "--source", str(path), "--canary", str(CANARY), "--yes")
        assert terminal.type_json("run", "start", *words)[0] == 0
        yield terminal


def held(terminal: Terminal, hold: str) -> str:
    """Wait until the run is held like this; return why."""
    until = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < until:
        shown = terminal.type_json("run", "show", RUN)[1]
        if shown.get("hold") == hold:
            return str(shown["hold_reason"])
    pytest.fail(f"it is never held by {hold}")


def requests(terminal: Terminal) -> int:
    """Return how many creates and confirms went through the proxy."""
    calls = terminal.type_json("audit", "--run", RUN, "--limit", "10000")[1]["calls"]
    return sum(call["method"] == "POST" for call in calls)


def test_a_run_waits_until_the_restore_is_cleared_and_then_charges_everybody_once(terminal: Terminal) -> None:
    """Resumed meanwhile it is held again, with the reason; cleared, it goes on under a new key."""
    held(terminal, "canary")
    exit_code, shown = terminal.type_json("restore")
    assert (exit_code, shown) == (0, {"restored": False})
    assert terminal.type_json("restore", "--declare")[0] == 2
    assert terminal.type_json("restore", "--declare", "--reason", "a drill")[1]["declared"] is True
    sent = requests(terminal)
    assert terminal.type_json("run", "resume", RUN, "--reason", "looks right")[0] == 0
    assert "restore --clear" in held(terminal, "breaker")
    assert requests(terminal) == sent
    assert terminal.type_json("run", "show", RUN)[1]["restored"] is True
    shown = terminal.type_json("restore")[1]
    assert (shown["runs"], shown["charges"]) == ([RUN], {"acct_sim": LINES - CANARY})
    exit_code, cleared = terminal.type_json("restore", "--clear", "--reason", "a drill")
    assert (exit_code, cleared["cleared"]) == (0, True)
    assert cleared["revoked"]
    assert terminal.type_json("run", "resume", RUN, "--reason", "cleared")[0] == 0
    assert terminal.type_json("run", "tick", RUN, "--wait")[0] == 0
    exit_code, proof = terminal.type_json("verify", RUN)
    assert exit_code == 0, proof
