from typing import Any

import pytest

from worker.reasons import REASON_RULE, read_reason
from worker.run_advice import advise
from worker.run_control import decision_of
from worker.run_decisions import parse_caps
from workflows.contracts import Decision
from workflows.domain.errors import InvalidInput

RUN = "billing-run/acct_1/2031-03"
RUNNING = {
    "run": RUN, "phase": "charging", "plan_hash": "ab", "hold": None, "hold_reason": None, "canceling": False,
}  # fmt: skip


def test_caps_are_typed_in_major_units() -> None:
    """As people write them, with the decimals that the currency has."""
    assert parse_caps(["usd=12345.00", "JPY=500"]) == {"usd": 1_234_500, "jpy": 500}


@pytest.mark.parametrize("words", [["12345.00"], ["usd=1,5"], ["usd=1", "usd=2"], ["dollars=1"], ["usd=-1"]])
def test_what_is_no_cap_is_refused(words: list[str]) -> None:
    """Nothing is guessed where a limit of money is typed."""
    with pytest.raises(InvalidInput):
        parse_caps(words)


@pytest.mark.parametrize(
    ("who", "reason"),
    [("", "why"), ("ops", ""), ("o" * 201, "why"), ("ops", "y" * 1_001), ("ops", "\0"), ("\x1b[2J", "why"),
     ("ops", " \n\t "), ("ops", "\u200b"), ("ops", "a\rb"), (" ", "why"), ("o\nps", "why")],
)  # fmt: skip
def test_a_decision_says_who_and_why(who: str, reason: str) -> None:
    """It is refused before any workflow hears of it."""
    with pytest.raises(InvalidInput):
        decision_of(Decision, who=who, reason=reason)
    if who == "ops":
        with pytest.raises(InvalidInput):
            read_reason(reason)


def test_a_reason_is_kept_as_the_refusal_of_others_says() -> None:
    """Without the blanks around it, and with the line breaks and tabs in it."""
    assert decision_of(Decision, who=" ops ", reason=" a\n\tb ") == Decision(who="ops", reason="a\n\tb")
    assert read_reason(" a\n\tb ") == "a\n\tb"
    assert "only line breaks and tabs" in REASON_RULE


@pytest.mark.parametrize(
    ("stands", "command"),
    [
        ({"phase": "planned"}, f"run approve {RUN} --hash ab --reason"),
        (
            {"phase": "planned", "hold": "paused", "hold_reason": "why"},
            f"run approve {RUN} --hash ab --reason",
        ),
        ({"hold": "paused", "hold_reason": "why"}, f"run resume {RUN} --reason"),
        ({"hold": "canary", "hold_reason": "why"}, f"run resume {RUN} --reason"),
        ({"hold": "breaker", "hold_reason": "why"}, f"run resume {RUN} --reason"),
        ({"hold": "cap", "hold_reason": "why"}, f"run raise-cap {RUN} --cap"),
    ],
)
def test_whoever_looks_at_a_waiting_run_is_told_what_to_type(stands: dict[str, Any], command: str) -> None:
    """The reason for which it waits, and the exact command."""
    advice = advise({**RUNNING, **stands})
    assert advice is not None
    assert f"chargeonce {command}" in advice
    assert not stands.get("hold_reason") or "why" in advice


@pytest.mark.parametrize("stands", [{}, {"canceling": True, "phase": "planned"}])
def test_a_run_that_waits_for_nobody_needs_no_advice(stands: dict[str, Any]) -> None:
    """What goes on, or is being canceled, does so by itself."""
    assert advise({**RUNNING, **stands}) is None
