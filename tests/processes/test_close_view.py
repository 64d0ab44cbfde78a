import io
from typing import Any

from rich.console import Console

from worker.close_view import render_close

RUN = "billing-run/acct_1/2031-03"
CHECKED = {"verdict": "clean", "how": "the account's time window", "requests": 3, "surprises": 0}
REPORT: dict[str, Any] = {
    "durations": {
        "planning_seconds": 3.2,
        "approval_seconds": None,
        "charging_seconds": 61.0,
        "held_seconds": 12.5,
        "all_seconds": 64.2,
        "estimated_charging_seconds": 40.0,
        "limit_seconds": 60.0,
        "within_limit": False,
    },
    "canceled": {"who": "ops@host", "reason": "[bold]wrong prices", "at": "2031-03-01T00:00:00+00:00"},
    "holds": [
        {"kind": "canary", "seconds": 12.5, "reason": "2 of 10 declined", "ended_by": "canary_released"}
    ],
    "double_charges": CHECKED,
}


def shown(report: dict[str, Any] | None) -> str:
    """Return what a terminal of 200 columns shows."""
    console = Console(file=io.StringIO(), width=200)
    for part in render_close(RUN, report):
        console.print(part, highlight=False, markup=False, soft_wrap=isinstance(part, str))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_close_shows_time_holds_and_the_check() -> None:
    """Who looks at a closed run reads how long it took and was held, and that nobody was charged twice."""
    text = shown(REPORT)
    assert "it took longer than its limit" in text
    assert "canceled by ops@host: [bold]wrong prices" in text
    assert "2 of 10 declined" in text
    assert "no double charge at Stripe (looked at the account's time window, 3 requests)" in text
    assert "approval" not in text


def test_a_check_without_an_answer_is_not_shown_as_one() -> None:
    """Not checked says why, and what is left to do."""
    check = {**CHECKED, "verdict": "not_checked", "not_checked": "HTTP 500", "surprises": 2}
    text = shown({**REPORT, "double_charges": check})
    assert f"double charges were not checked: HTTP 500; ask with chargeonce verify {RUN}" in text
    assert "paid otherwise than the ledger says: 2 lines" in text
    assert "no double charge" not in text


def test_a_double_charge_is_named() -> None:
    """Each charge with the PaymentIntents that paid it."""
    check = {**CHECKED, "verdict": "found", "found": 1, "charges": {"0f": ["pi_1", "pi_2"]}}
    text = shown({**REPORT, "double_charges": check})
    assert "DOUBLE CHARGES at Stripe: 1 line; see" in text
    assert "pi_1, pi_2" in text


def test_a_run_that_sent_nothing_asked_nobody() -> None:
    """No request, no look: it says that there was nothing to ask about."""
    check = {**CHECKED, "how": "nothing of this run was ever sent", "requests": 0}
    text = shown({**REPORT, "double_charges": check})
    assert "no double charge: nothing of this run was ever sent, so there was nothing to ask Stripe" in text


def test_without_a_report_there_is_nothing_to_show() -> None:
    """A run that is open, or closed before there were reports, shows none."""
    assert shown(None) == ""
