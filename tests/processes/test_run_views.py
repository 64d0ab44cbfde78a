"""What people read about runs: pure functions of what the ledger and Temporal said."""

import io
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from activities.three_totals import ThreeTotals
from deploy.moving_clock import describe_due
from tests.processes.test_waiting import closed_run
from worker.books_view import render_books
from worker.plan_preview import REASONS, render_plan
from worker.progress_display import PlainLines
from worker.run_advice import describe_canary
from worker.run_decisions import describe_event, refuse_wordless, render_decision
from worker.run_read import render_list, render_run
from worker.run_start import StartCommand
from worker.run_view import RunView, describe_open, describe_wait, name_state, sum_up_outcomes
from worker.start_again import describe_start
from workflows.domain.counted import counted
from workflows.domain.errors import InvalidInput
from workflows.domain.skips import SkipReason

if TYPE_CHECKING:
    from rich.console import RenderableType

RUN = "billing-run/acct_1/2031-03"
RECOVER = f"chargeonce run recover {RUN} --reason"
AT = datetime(2031, 3, 1, 12, tzinfo=UTC)
COUNTS = dict.fromkeys(
    (
        "succeeded", "processing", "declined", "needs_customer", "refused", "review", "canceled", "skipped",
        "taken_over", "unknown", "not_started",
    ),
    0,
)  # fmt: skip
OPEN: dict[str, Any] = {
    "run": RUN, "phase": "charging", "reason": None, "hold": None, "hold_reason": None, "canceling": False,
    "plan_hash": "ab", "next_due": None, **COUNTS, "lines": 10, "succeeded": 4, "unknown": 1,
    "not_started": 5,
}  # fmt: skip
RUNNING, LOST, UNKNOWN = ({"workflow": {"state": state}} for state in ("running", "lost", "unknown"))


def shown(parts: Iterable["RenderableType"]) -> str:
    """Return what a wide terminal shows."""
    console = Console(file=io.StringIO(), width=250)
    for part in parts:
        console.print(part, highlight=False, markup=False, soft_wrap=isinstance(part, str))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    "stands",
    [{}, {"phase": "planned"}, {"hold": "paused", "hold_reason": "a break"}, {"canceling": True}],
)
def test_a_lost_workflow_is_told_whatever_the_ledger_waits_for(stands: dict[str, Any]) -> None:
    """Nobody is told that such a run goes on, or to approve or resume it: only a recovery carries it on."""
    told = describe_wait({**OPEN, **stands, **LOST}) or ""
    assert RECOVER in told
    assert "goes on by itself" not in told
    assert "run approve" not in told
    assert "its workflow is lost" in name_state({**OPEN, **stands, **LOST})


def test_an_unknown_workflow_is_not_said_to_go_on() -> None:
    """Where Temporal does not answer, nothing is promised; where it runs, it goes on."""
    told = describe_wait({**OPEN, **UNKNOWN}) or ""
    assert "Temporal does not answer" in told
    assert "goes on by itself" not in told
    held = describe_wait({**OPEN, "phase": "planned", **UNKNOWN}) or ""
    assert "run approve" in held
    assert "Temporal does not answer" in held
    assert "goes on by itself" in (describe_wait({**OPEN, **RUNNING}) or "")
    assert describe_wait({**OPEN, "phase": "closed", **LOST}) is None


@pytest.mark.parametrize(
    ("stands", "name"),
    [
        ({}, "charging"),
        ({"phase": "locked"}, "planning"),
        ({"phase": "planned"}, "waits for approval"),
        ({"hold": "canary"}, "charging, held (canary)"),
        ({"canceling": True}, "charging, being canceled"),
        ({"phase": "closed"}, "closed"),
        ({"phase": "closed", "canceling": True}, "closed (canceled)"),
    ],
)
def test_a_run_is_called_the_same_everywhere(stands: dict[str, Any], name: str) -> None:
    """The list, the one run and the progress line share their words."""
    assert name_state({**OPEN, **stands}) == name


def test_a_list_adds_up_and_names_what_is_lost() -> None:
    """What has no column of its own is summed up, and a lost run is told with what carries it on."""
    counts = {name: number for number, name in enumerate(COUNTS, start=1)}
    entry = {
        **OPEN, **counts, "lines": sum(counts.values()), "locked_at": AT, "started_by": "ops", **LOST,
    }  # fmt: skip
    text = shown(render_list([entry]))
    row = next(line for line in text.splitlines() if line.startswith(RUN) and "2031-03-01" in line)
    numbers = [int(word) for word in row.partition("lost")[2].split()[:9]]
    assert numbers[0] == sum(numbers[1:]) == entry["lines"]
    assert RECOVER in text


def test_lines_that_nobody_may_charge_are_not_due_now() -> None:
    """Of a run that waits for a person only what is in flight goes on; the rest says what keeps it."""
    rows: list[dict[str, Any]] = [
        {"state": "planned", "reason": None, "lines": 5, "due_at": None},
        {"state": "prepared", "reason": "requires_confirmation", "lines": 1, "due_at": None},
        {"state": "confirming", "reason": None, "lines": 1, "due_at": None},
        {"state": "confirming", "reason": "no answer", "lines": 1, "due_at": AT},
    ]
    held = [(row["reason"], row["due"]) for row in describe_open(rows, {**OPEN, "hold": "canary"})]
    decided = "when somebody has decided"
    assert held == [
        ("held (canary)", decided), ("held (canary)", decided), ("in progress", "now"),
        ("no answer", "2031-03-01 12:00:00"),
    ]  # fmt: skip
    waiting = describe_open(rows[:1], {**OPEN, "phase": "planned"})
    assert (waiting[0]["reason"], waiting[0]["due"]) == ("waits for approval", decided)
    going = describe_open(rows[:1], OPEN)
    assert (going[0]["reason"], going[0]["due"]) == ("its turn comes", "now")
    canceling = describe_open(rows[:1], {**OPEN, "canceling": True, "hold": None})
    assert (canceling[0]["reason"], canceling[0]["due"]) == ("it is to be canceled", "now")


def test_what_is_not_paid_is_summed_up_by_where_it_stands() -> None:
    """Canceled lines are lines that nobody has paid, and are said to be."""
    counts = {**COUNTS, "succeeded": 1, "canceled": 15, "declined": 2, "processing": 3, "not_started": 4}
    assert sum_up_outcomes(counts) == (
        "1 line paid, 17 not paid (2 declined, 15 canceled), 3 on the way (a debit takes days), 4 open"
    )


def test_one_run_shows_its_canary_and_its_unpaid_lines() -> None:
    """Before anything is charged the canary is named; after it, who is not paid."""
    document = {
        **OPEN, "locked_at": AT, "started_by": "ops", "source": "charges.csv", "approved_by": "fin",
        "canary": {"lines": 100, "declined_percent_max": None}, "canary_released": False, "totals": {},
        "reasons": [{"standing": "canceled", "reason": "canceled at Stripe", "lines": 1}],
        "unpaid": [
            {"customer": "cus_7", "line": "base", "currency": "usd", "amount_minor": 1_250,
             "standing": "canceled", "reason": "canceled at Stripe"},
        ],
        "unpaid_lines": 1, "report": None, "books": None, "plan": None, "waiting": [],
        "workflow": {"state": "running", "answers": False}, "restored": False,
    }  # fmt: skip
    text = shown(render_run(document))
    assert "canary: the first 100 lines charged alone, then it holds until somebody has looked" in text
    assert "cus_7/base" in text
    assert "12.50 USD" in text
    assert "no worker answers" in text
    assert "canary:" not in shown(render_run({**document, "canary_released": True}))
    assert "restored" not in text
    assert "nothing is sent for any run" in shown(render_run({**document, "restored": True}))


def test_a_canary_with_a_rule_says_the_rule() -> None:
    """And a run without a canary has nothing to say about one."""
    assert "at most 5 %" in (describe_canary({"lines": 1, "declined_percent_max": 5.0}) or "")
    assert describe_canary({"lines": 0}) is None
    assert describe_canary(None) is None


DECIDED: dict[str, Any] = {
    "decision": "paused", "run": RUN, "hold": "paused", "hold_reason": "a break", "canceling": False,
    "already": None, "lines": 10, "settled": 4, "in_flight": 2, "not_started": 4, "canary_waits": False,
}  # fmt: skip


def test_a_decision_says_what_was_so_already() -> None:
    """The second of two people reads who was first and why; what is in flight is said in whole words."""
    first = shown(render_decision(DECIDED))
    assert "paused." in first
    assert "4 of 10 lines settled, 2 in flight, which will still be settled, 4 not begun." in first
    again = shown(
        render_decision({**DECIDED, "already": "it was paused already: paused by ops at noon: why"})
    )
    assert "it was paused already: paused by ops at noon: why. Your reason is on record beside it." in again


def test_a_resume_before_the_canarys_verdict_says_that_it_is_held_again() -> None:
    """One that released the canary has nothing to add."""
    resumed = {**DECIDED, "decision": "resumed", "hold": None, "hold_reason": None}
    assert "canary is not judged yet" in shown(render_decision({**resumed, "canary_waits": True}))
    assert "canary" not in shown(render_decision(resumed))


@pytest.mark.parametrize(
    ("action", "detail", "said"),
    [
        ("approved", {"plan_hash": "ab12"}, "plan ab12"),
        ("cap_raised", {"caps_minor": {"usd": [1_100, 2_000]}}, "11.00 USD to 20.00 USD"),
        ("resumed", {"hold": "paused"}, "was held (paused)"),
        ("paused", {"instead_of": "canary"}, "instead of its hold (canary)"),
        ("closed", {"succeeded": 3}, ""),
    ],
)
def test_the_audit_trail_says_what_was_decided_about(action: str, detail: dict[str, Any], said: str) -> None:
    """An approval without its hash, or a cap without its amounts, would prove nothing."""
    assert describe_event({"action": action, "detail": detail}) == said


@pytest.mark.parametrize(("reason", "who", "named"), [(" ", None, "--reason"), ("why", "", "--who")])
def test_a_decision_without_words_is_told_as_such(reason: str, who: str | None, named: str) -> None:
    """The message names the option that is empty, and nothing else."""
    with pytest.raises(InvalidInput, match=named) as refused:
        refuse_wordless(reason, who=who)
    assert "cap" not in refused.value.reason


PLAN: dict[str, Any] = {
    "source": "charges.csv", "selected": 1, "period": "2031-03", "account": "acct_1", "lines": 1,
    "totals": {}, "skipped": {}, "below_minimum": 0, "comparison": None,
    "lookups": {"customers": 1, "requests": 1}, "lookup_seconds": 0.1, "rate_per_second": 25.0,
    "charge_seconds": 0.1, "plan_hash": "ab12",
}  # fmt: skip


def test_a_plan_warns_of_lines_below_the_minimum() -> None:
    """What Stripe will refuse is said before it does; and a carried line is owed, and billed by nobody."""
    assert "Stripe will refuse 3 lines" in shown(render_plan({**PLAN, "below_minimum": 3}))
    carried = shown(render_plan({**PLAN, "skipped": {"below_minimum_carried_forward": 2}}))
    assert "2 lines carried forward" in carried
    assert "add it to a later source yourself" in carried
    plain = shown(render_plan(PLAN))
    assert "refuse" not in plain
    assert "1 customer pay (1 request)" in plain
    assert "nobody is to be charged" in shown(render_plan({**PLAN, "lines": 0}))


def test_every_reason_has_words() -> None:
    """Whoever approves need not know the program."""
    assert set(SkipReason) <= REASONS.keys()


def test_a_preview_gives_the_command_that_charges_it() -> None:
    """Everything that was typed, quoted for a shell, with the hash; nothing that was left out."""
    command = StartCommand(
        period="2031-03", source="my charges.csv", account="acct_1", yes=False, approve=None, preview=True,
        wait=True, skip_invalid=True, below_minimum="waive", change_percent=20.0, canary_lines=100,
        canary_declined_percent_max=2.5, duration_limit_minutes=None, live=False, slice_lines=500,
    )  # fmt: skip
    typed = (
        "chargeonce run start --period 2031-03 --source 'my charges.csv' --account acct_1 --canary 100 "
        "--canary-max-declined 2.5 --below-minimum waive"
    )
    start = describe_start(command, run_id=RUN, source="my charges.csv", approve="ab12")
    assert start == f"{typed} --skip-invalid --approve ab12"
    later = describe_start(command, run_id=f"{RUN}/r2", source="my charges.csv", approve="ab12")
    assert later == f"{typed} --again --skip-invalid --approve ab12"
    again = replace(command, again=True)
    assert describe_start(again, run_id=f"{RUN}/r2", source="my charges.csv", approve="ab12") == later


def test_no_backstop_is_missed_where_nothing_was_sent() -> None:
    """A run whose lines were all skipped has no key at the proxy, and needs none."""
    nothing = ThreeTotals({}, None, None, {}, sent=False)
    assert (nothing.backstop, ThreeTotals({}, None, None, {}).backstop) == (None, False)
    assert "no backstop" not in shown(render_books(nothing.as_json()))
    assert "no backstop" in shown(render_books(ThreeTotals({}, None, None, {}).as_json()))


def test_a_run_that_waits_says_so_once() -> None:
    """The same line again would only scroll away what came before it."""
    lines: list[str] = []
    display = PlainLines(lines.append)
    for _ in range(3):
        display._last_at -= 10  # as if ten seconds had passed
        display.update(RunView(RUN, closed_run(), {"succeeded": 3}, None))
    assert lines == ["closed: 3/3 3 succeeded"]


def test_a_moved_clock_says_what_there_is_to_see() -> None:
    """Runs in which something is due now, or that there is none."""
    due = [{"run": RUN, "lines": 1, "phase": "settling"}]
    assert list(describe_due(due)) == [f"{RUN}: 1 line due now: chargeonce run tick {RUN} --wait"]
    assert "no run has anything due" in next(iter(describe_due([])))


def test_one_is_not_several() -> None:
    """Numbers come with their nouns."""
    assert [counted(number, "request") for number in (0, 1, 2_000)] == [
        "0 requests", "1 request", "2,000 requests",
    ]  # fmt: skip
    assert counted(2, "entry", "entries") == "2 entries"
