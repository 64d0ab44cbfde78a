"""Which lines of an earlier run a later plan takes over, and why it leaves the others."""

import pytest

from activities.ledger.runs import RunLedger
from tests.activities.planning import RUN_ID, Plans
from tests.ledger.planting import close_run
from workflows.domain.skips import SkipReason
from workflows.domain.states import State

LATER = f"{RUN_ID}/r2"
LEFT_UNPAID = (State.DECLINED, State.NEEDS_CUSTOMER, State.REFUSED, State.CANCELED)
PHASES = {
    "retrying": "phase = 'retrying', charging_closed_at = ledger_now()",
    "charging": "phase = 'charging'",
}
FOLLOW_UP = """
INSERT INTO follow_ups (charge_id, run_id, kind, rule, payment_intent, step, confirm_version, since, due_at,
                        ends_at, reason, opened_at)
SELECT charge_id, run_id, $2, 'default', 'pi_1', 0, 1, ledger_now(), ledger_now(), ledger_now(), 'x',
       ledger_now()
  FROM charges WHERE customer = $1
"""


async def leave(plans: Plans, *states: State, phase: str = "closed") -> None:
    """Let the first run end with one customer in each of these states; each has been sent."""
    pool = plans.scene.pool
    await plans.planned(*(f"cus_{number},usd,100,pm_{number}" for number in range(1, len(states) + 1)))
    await plans.scene.owner.execute("ALTER TABLE charges DISABLE TRIGGER charges_check_step")
    try:
        for number, state in enumerate(states, start=1):
            await pool.execute(
                "UPDATE charges SET state = $2, create_version = 1, payment_intent = 'pi_1'"
                " WHERE customer = $1",
                f"cus_{number}",
                state,
            )
    finally:
        await plans.scene.owner.execute("ALTER TABLE charges ENABLE TRIGGER charges_check_step")
    if phase == "closed":
        await close_run(pool, RUN_ID)
    else:
        await pool.execute(f"UPDATE billing_runs SET {PHASES[phase]}")


async def plan_again(plans: Plans, lines: int) -> dict[str | None, str]:
    """Preview a later run over these customers, and return what is skipped, by reason of each customer."""
    rows = [f"cus_{number},usd,100,pm_9" for number in range(1, lines + 1)]
    await plans.planned(*rows, run_id=LATER)
    return {customer: reason for customer, (reason, _) in (await plans.skipped(LATER)).items()}


async def test_what_ended_without_success_is_taken_over(plans: Plans) -> None:
    """Declined, refused, canceled, and a customer whom nobody waits for: sent before, and charged again."""
    await leave(plans, *LEFT_UNPAID)
    assert await plan_again(plans, len(LEFT_UNPAID)) == {}
    assert await RunLedger(plans.scene.pool).counts(RUN_ID) == {"taken_over": len(LEFT_UNPAID)}
    rows = await plans.scene.pool.fetch("SELECT state, run_id, create_version, payment_intent FROM charges")
    assert {tuple(row) for row in rows} == {("planned", LATER, 1, "pi_1")}


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (State.SUCCEEDED, SkipReason.ALREADY_CHARGED),
        (State.PROCESSING, SkipReason.ALREADY_CHARGED),
        (State.REVIEW, SkipReason.IN_REVIEW),
    ],
)
async def test_what_is_paid_or_for_people_stays(plans: Plans, state: State, reason: SkipReason) -> None:
    """Paid or on its way is not due, and what is in review is first decided about."""
    await leave(plans, state)
    assert await plan_again(plans, 1) == {"cus_1": reason}
    detail = await plans.skipped(LATER)
    assert RUN_ID in detail["cus_1"][1]
    assert state in detail["cus_1"][1]


@pytest.mark.parametrize(
    ("kind", "state", "reason"),
    [
        ("retry", State.DECLINED, SkipReason.WAITING_FOR_RETRY),
        ("customer", State.NEEDS_CUSTOMER, SkipReason.WAITING_FOR_CUSTOMER),
        ("debit", State.PROCESSING, SkipReason.ALREADY_CHARGED),
    ],
)
async def test_what_is_waited_for_stays(plans: Plans, kind: str, state: State, reason: SkipReason) -> None:
    """While a run waits for a retry or a customer nobody else charges that line; the others are free."""
    await leave(plans, state, State.DECLINED, phase="retrying")
    await plans.scene.pool.execute(FOLLOW_UP, "cus_1", kind)
    assert await plan_again(plans, 2) == {"cus_1": reason}
    assert await plans.states(LATER) == {"cus_2": ("planned", None)}


async def test_of_a_run_that_is_still_charging_nothing_is_taken(plans: Plans) -> None:
    """A preview of the next run says so for every line that is not paid, however it stands."""
    await leave(plans, State.DECLINED, State.SUCCEEDED, State.CONFIRMING, phase="charging")
    source = plans.write(*(f"cus_{number},usd,100,pm_9" for number in (1, 2, 3)))
    preview = await plans.planner().preview(plans.request(source, run_id=LATER))
    assert preview.skipped == {SkipReason.IN_ANOTHER_RUN: 2, SkipReason.ALREADY_CHARGED: 1}
    assert preview.lines == 0


async def test_a_plan_says_what_it_takes_over(plans: Plans) -> None:
    """Whoever approves it sees how many lines had ended, and how, in an earlier run."""
    await leave(plans, State.DECLINED, State.CANCELED, State.DECLINED, State.SUCCEEDED)
    source = plans.write(*(f"cus_{number},usd,100,pm_9" for number in range(1, 6)))
    preview = await plans.planner().preview(plans.request(source, run_id=LATER))
    assert preview.taken_over == {"canceled": 1, "declined": 2}
    assert (preview.lines, preview.nothing_due) == (4, None)


async def test_a_rerun_with_nothing_to_do_needs_no_approval_and_says_so(plans: Plans) -> None:
    """Every line is paid: the plan charges nobody, so it goes on to its close with that reason."""
    pool = plans.scene.pool
    await leave(plans, State.SUCCEEDED, State.SUCCEEDED)
    rows = ("cus_1,usd,100,pm_1", "cus_2,usd,100,pm_2")
    run = await plans.planned(*rows, run_id=LATER, approve_any=False)
    assert (run.phase, run.slices) == ("charging", 0)
    assert run.reason == f"nothing is due: 2 lines charged by run {RUN_ID}"
    closed = await close_run(pool, LATER)
    assert (closed.phase, closed.reason) == ("closed", run.reason)
    assert await RunLedger(pool).counts(LATER) == {"skipped_rows": 2}


async def test_a_plan_that_charges_nobody_by_itself_waits_for_approval(plans: Plans) -> None:
    """Nothing to pay in the source is no other run's doing: somebody should look at that file."""
    run = await plans.planned("cus_1,usd,0,pm_1", approve_any=False)
    assert (run.phase, run.reason) == ("planned", None)


async def test_totals_and_caps_count_what_is_taken_over(plans: Plans) -> None:
    """The later run may move what its plan wants, taken-over and corrected lines included, and no more."""
    await leave(plans, State.DECLINED, State.DECLINED)
    rows = ("cus_1,usd,100,pm_9", "cus_2,usd,300,pm_9", "cus_3,usd,1000,pm_9")
    await plans.planned(*rows, run_id=LATER)
    total = await plans.scene.pool.fetchrow("SELECT * FROM run_totals WHERE run_id = $1", LATER)
    assert total is not None
    assert (total["lines"], total["amount_minor"], total["cap_minor"]) == (3, 1_400, 1_540)
