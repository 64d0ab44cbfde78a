import asyncio
from collections.abc import Sequence

import asyncpg
import pytest

from activities.ledger.charges import ChargeLedger
from activities.ledger.control import ControlLedger, Ruling
from activities.ledger.database import Pool
from activities.ledger.runs import RunLedger
from deploy.postgres import Database
from tests.ledger.planting import (
    ACCOUNT,
    PERIOD,
    RUN,
    claim_one,
    close_run,
    freeze_clock,
    intend,
    plant,
    run_as_owner,
)
from workflows.domain.errors import RefusedToStart, StaleWrite
from workflows.domain.states import State

BY = {"who": "ops@host", "reason": "a good reason"}
HASH, OTHER_HASH = "a" * 64, "b" * 64
CHANGED, STANDS = Ruling(changed=True), Ruling()

_LOCKED_RUN = """
INSERT INTO billing_runs (run_id, account, period, owner, phase, source, source_sha256, started_by, locked_at)
VALUES ($1, $2, $3, 'first', 'locked', 'charges.csv', 'ab', 'tests', ledger_now())
"""
_PLANNED_RUN = """
UPDATE billing_runs
   SET phase = $2, selected = 0, planned_at = ledger_now(), plan_hash = $3, approved_hash = $4
 WHERE run_id = $1
"""
_BUDGET = "INSERT INTO vault_budgets (budget, currency, cap_minor, daily) VALUES ($1, $2, $3, $4)"
_TOTAL = "INSERT INTO run_totals VALUES ($1, $2, 1, 1000, 1100)"


@pytest.fixture
def control(pool: Pool) -> ControlLedger:
    """Decisions about the runs of an empty ledger."""
    return ControlLedger(pool)


@pytest.fixture
def runs(pool: Pool) -> RunLedger:
    """The runs of an empty ledger."""
    return RunLedger(pool)


async def make_run(pool: Pool, phase: str, *, currencies: Sequence[str] = ("usd", "eur")) -> None:
    """Insert a run that has come so far, with caps in two currencies or others once it has a plan."""
    await pool.execute(_LOCKED_RUN, RUN, ACCOUNT, PERIOD)
    if phase != "locked":
        await pool.executemany(_TOTAL, [(RUN, currency) for currency in currencies])
        approved = HASH if phase in {"charging", "settling"} else None
        await pool.execute(_PLANNED_RUN, RUN, phase, HASH, approved)


async def actions(control: ControlLedger) -> list[str]:
    """Return what the audit trail says was done, in order."""
    return [event.action for event in await control.events(RUN)]


async def phase_and_hold(control: ControlLedger) -> tuple[str, str | None]:
    """Return where the run stands."""
    stands = await control.standing(RUN)
    return stands.phase, stands.hold


async def test_an_approval_of_the_plans_hash_lets_the_run_charge_once(
    pool: Pool, control: ControlLedger
) -> None:
    """The approval is recorded with who, when and why, and saying it again adds nothing."""
    await make_run(pool, "planned")
    assert await control.approve(RUN, HASH, **BY) == CHANGED
    assert await control.approve(RUN, HASH, **BY) == STANDS
    assert await phase_and_hold(control) == ("charging", None)
    (event,) = await control.events(RUN)
    assert (event.action, event.who, event.reason) == ("approved", BY["who"], BY["reason"])
    assert event.detail == {"plan_hash": HASH}


@pytest.mark.parametrize("phase", ["planned", "charging"])
async def test_an_approval_of_another_hash_changes_nothing(
    pool: Pool, control: ControlLedger, phase: str
) -> None:
    """A stale hash is refused by naming both hashes, before and after an approval of the right one."""
    await make_run(pool, phase)
    refused = (await control.approve(RUN, OTHER_HASH, **BY)).refused
    assert refused is not None
    assert HASH in refused
    assert OTHER_HASH in refused
    assert await phase_and_hold(control) == (phase, None)
    assert await actions(control) == []


async def test_a_run_without_a_plan_can_not_be_approved(pool: Pool, control: ControlLedger) -> None:
    """There is nothing that an approval could name."""
    await make_run(pool, "locked")
    assert "no plan yet" in ((await control.approve(RUN, HASH, **BY)).refused or "")


async def test_the_database_itself_lets_no_unapproved_run_charge(pool: Pool) -> None:
    """Whoever writes the phase past `planned` without an approval of that very plan is refused."""
    await make_run(pool, "planned")
    with pytest.raises(asyncpg.CheckViolationError, match="charges_only_approved"):
        await pool.execute("UPDATE billing_runs SET phase = 'charging'")
    with pytest.raises(asyncpg.CheckViolationError, match="approved_its_plan"):
        await pool.execute("UPDATE billing_runs SET phase = 'charging', approved_hash = $1", OTHER_HASH)


@pytest.mark.parametrize("phase", ["locked", "planned", "charging", "settling"])
async def test_an_open_run_is_paused_and_resumed_once_each(
    pool: Pool, control: ControlLedger, phase: str
) -> None:
    """In every phase that is not an end; a repeated pause or resume is fine and leaves one event each."""
    await make_run(pool, phase)
    assert await control.hold(RUN, "paused", **BY) == CHANGED
    assert await control.hold(RUN, "paused", **BY) == STANDS
    stands = await control.standing(RUN)
    assert (stands.hold, stands.hold_reason, stands.may_begin) == ("paused", BY["reason"], False)
    assert await control.resume(RUN, **BY) == CHANGED
    assert await control.resume(RUN, **BY) == STANDS
    assert await phase_and_hold(control) == (phase, None)
    assert await actions(control) == ["paused", "resumed"]


async def test_a_pause_replaces_a_rules_hold_and_no_rule_replaces_a_pause(
    pool: Pool, control: ControlLedger
) -> None:
    """A breaker that closes by itself must not end a pause, and a breaker finds the run held already."""
    await make_run(pool, "charging")
    assert await control.hold(RUN, "breaker", who="rule", reason="no answers") == CHANGED
    assert await control.hold(RUN, "cap", who="rule", reason="the cap") == STANDS
    assert await control.hold(RUN, "paused", **BY) == CHANGED
    assert await control.hold(RUN, "breaker", who="rule", reason="no answers") == STANDS
    assert await control.close_breaker(RUN, who="rule", reason="answers again") == STANDS
    assert await phase_and_hold(control) == ("charging", "paused")
    opened, paused = await control.events(RUN)
    assert (opened.action, paused.action, paused.detail) == (
        "breaker_opened", "paused", {"instead_of": "breaker"},
    )  # fmt: skip


async def test_a_breaker_closes_by_itself_and_says_what_it_was(pool: Pool, control: ControlLedger) -> None:
    """Its end is an event of its own, beside the reason for which it had opened."""
    await make_run(pool, "settling")
    await control.hold(RUN, "breaker", who="rule", reason="no answers")
    assert await control.close_breaker(RUN, who="rule", reason="answers again") == CHANGED
    assert await control.close_breaker(RUN, who="rule", reason="answers again") == STANDS
    assert await phase_and_hold(control) == ("settling", None)
    assert (await control.events(RUN))[-1].detail == {"opened": "no answers"}


async def test_a_canary_is_released_by_a_person_or_by_the_rule_and_once(
    pool: Pool, control: ControlLedger
) -> None:
    """Resuming a run that its canary holds is its release, and the rule has nothing to add to it."""
    await make_run(pool, "charging")
    await control.hold(RUN, "canary", who="rule", reason="3 of 10 declined")
    assert await control.resume(RUN, **BY) == CHANGED
    assert await control.release_canary(RUN, who="rule", reason="0 of 10 declined") == STANDS
    assert (await control.standing(RUN)).canary_released
    assert await actions(control) == ["canary_held", "canary_released"]


async def test_the_rule_releases_a_canary_once(pool: Pool, control: ControlLedger) -> None:
    """A repeated activity leaves one event."""
    await make_run(pool, "charging")
    assert await control.release_canary(RUN, who="rule", reason="0 of 10 declined") == CHANGED
    assert await control.release_canary(RUN, who="rule", reason="0 of 10 declined") == STANDS
    assert await actions(control) == ["canary_released"]


async def test_a_resume_after_the_canarys_verdict_releases_it_through_a_pause(
    pool: Pool, control: ControlLedger
) -> None:
    """Whoever pauses a run behind its canary and resumes it lets the rest follow; before, nobody has."""
    await make_run(pool, "charging")
    await control.hold(RUN, "paused", **BY)
    assert await control.resume(RUN, **BY) == CHANGED
    assert not (await control.standing(RUN)).canary_released  # its lines were not judged yet
    await control.hold(RUN, "canary", who="rule", reason="10 of 10 paid")
    await control.hold(RUN, "paused", **BY)
    assert await control.resume(RUN, **BY) == CHANGED
    assert (await control.standing(RUN)).canary_released
    assert await actions(control) == ["paused", "resumed", "canary_held", "paused", "canary_released"]


async def test_who_decides_what_stands_already_hears_it_and_is_on_record(
    pool: Pool, control: ControlLedger
) -> None:
    """The second of two at once reads who was first and why; both reasons stay, and a retry adds neither."""
    second = {"who": "finance@desk", "reason": "the list is wrong"}
    await make_run(pool, "charging")
    assert (await control.resume(RUN, **BY)).already == "it was not held"

    async def decide(what: str, by: dict[str, str]) -> Ruling:
        match what:
            case "paused":
                return await control.hold(RUN, "paused", **by)
            case "resumed":
                return await control.resume(RUN, **by)
            case _:
                return await control.request_cancel(RUN, **by)

    for what, stands in (
        ("paused", "it was paused already: paused by ops@host at "),
        ("resumed", "it was not held: resumed by ops@host at "),
        ("cancel_requested", "it was being canceled already: cancel requested by ops@host at "),
    ):
        assert await decide(what, BY) == CHANGED
        assert await decide(what, BY) == STANDS
        for _ in range(2):
            already = (await decide(what, second)).already or ""
            assert already.startswith(stands)
            assert already.endswith(": a good reason")
    unheld, *events = await control.events(RUN)
    assert (unheld.action, unheld.who) == ("resumed_again", "ops@host")
    assert [(one.action, one.who) for one in events] == [
        (action, who)
        for name in ("paused", "resumed", "cancel_requested")
        for action, who in ((name, "ops@host"), (f"{name}_again", "finance@desk"))
    ]
    assert events[1].reason == "the list is wrong"


@pytest.mark.parametrize("phase", ["locked", "planned", "charging", "settling"])
async def test_a_cancel_is_never_undone(pool: Pool, control: ControlLedger, phase: str) -> None:
    """It lifts a hold, is said once, leaves who and why with the run, and refuses what comes after it."""
    await make_run(pool, phase)
    await control.hold(RUN, "paused", **BY)
    assert await control.request_cancel(RUN, **BY) == CHANGED
    assert await control.request_cancel(RUN, **BY) == STANDS
    stands = await control.standing(RUN)
    assert (stands.phase, stands.hold, stands.canceling, stands.may_begin) == (phase, None, True, False)
    refusals = [
        await control.hold(RUN, "paused", **BY),
        await control.resume(RUN, **BY),
        await control.release_canary(RUN, **BY),
        await control.raise_cap(RUN, {"usd": 2_000}, **BY),
    ]
    assert all("is being canceled" in (ruling.refused or "") for ruling in refusals)
    if phase == "planned":
        assert "is being canceled" in ((await control.approve(RUN, HASH, **BY)).refused or "")
    assert await actions(control) == ["paused", "cancel_requested"]
    assert await pool.fetchval("SELECT reason FROM billing_runs") == "canceled by ops@host: a good reason"


async def test_a_run_that_was_canceled_before_its_approval_closes(pool: Pool, control: ControlLedger) -> None:
    """From `planned` a run closes only by a cancel; its reason and its last event say so."""
    await make_run(pool, "planned")
    with pytest.raises(StaleWrite):
        await close_run(pool)
    await control.request_cancel(RUN, **BY)
    closed = await close_run(pool)
    assert (closed.phase, closed.reason) == ("closed", "canceled by ops@host: a good reason")
    assert await actions(control) == ["cancel_requested", "closed"]


async def test_a_run_that_has_ended_takes_no_decision(pool: Pool, control: ControlLedger) -> None:
    """What is closed stays as it is, and every refusal says so."""
    await make_run(pool, "settling")
    await control.hold(RUN, "paused", **BY)
    await close_run(pool)
    refusals = [
        await control.hold(RUN, "paused", **BY),
        await control.resume(RUN, **BY),
        await control.request_cancel(RUN, **BY),
        await control.release_canary(RUN, **BY),
        await control.raise_cap(RUN, {"usd": 2_000}, **BY),
        await control.recover(RUN, owner_before="first", owner="second", **BY),
    ]
    assert all("has ended (closed)" in (ruling.refused or "") for ruling in refusals)
    assert await phase_and_hold(control) == ("closed", None)
    assert await actions(control) == ["paused", "closed"]


async def test_a_cap_goes_up_and_releases_the_run_that_stands_at_it(
    pool: Pool, control: ControlLedger
) -> None:
    """The event has the cap before and after; the same cap again is no event."""
    await make_run(pool, "charging")
    await control.hold(RUN, "cap", who="rule", reason="the cap of 11.00 USD is reached")
    assert await control.raise_cap(RUN, {"usd": 2_000}, **BY) == CHANGED
    assert await control.raise_cap(RUN, {"usd": 2_000}, **BY) == STANDS
    assert await phase_and_hold(control) == ("charging", None)
    assert (await control.events(RUN))[-1].detail == {"caps_minor": {"usd": [1_100, 2_000]}, "resumed": True}


async def test_a_higher_cap_ends_no_other_hold(pool: Pool, control: ControlLedger) -> None:
    """A paused run stays paused, whatever becomes of its cap."""
    await make_run(pool, "charging")
    await control.hold(RUN, "paused", **BY)
    assert await control.raise_cap(RUN, {"usd": 2_000, "eur": 3_000}, **BY) == CHANGED
    assert await phase_and_hold(control) == ("charging", "paused")


@pytest.mark.parametrize(
    ("caps_minor", "why"),
    [
        ({"usd": 1_099}, "stands at 11.00 USD"),
        ({"usd": 2_000, "eur": 1}, "stands at 11.00 EUR"),
        ({"usd": 2_000, "jpy": 500}, "charges nothing in 'jpy'"),
    ],
)
async def test_caps_go_up_together_or_not_at_all(
    pool: Pool, control: ControlLedger, caps_minor: dict[str, int], why: str
) -> None:
    """A lower cap or a currency that the plan does not have refuses the whole decision."""
    await make_run(pool, "charging")
    assert why in ((await control.raise_cap(RUN, caps_minor, **BY)).refused or "")
    assert await pool.fetchval("SELECT sum(cap_minor) FROM run_totals") == 2_200
    assert await actions(control) == []


async def test_a_run_without_a_plan_has_no_cap(pool: Pool, control: ControlLedger) -> None:
    """There is nothing to raise yet."""
    await make_run(pool, "locked")
    assert "no cap" in ((await control.raise_cap(RUN, {"usd": 1}, **BY)).refused or "")


async def test_a_run_that_charges_nobody_has_no_cap_to_raise(pool: Pool, control: ControlLedger) -> None:
    """It is refused for good: an answer that said to try again would be tried for ever."""
    await make_run(pool, "charging", currencies=())
    assert "no cap" in ((await control.raise_cap(RUN, {"usd": 1}, **BY)).refused or "")


async def test_the_database_itself_lowers_no_cap(pool: Pool, database: Database) -> None:
    """Not even the schema's owner takes back what was allowed, or touches what was approved, by accident."""
    await make_run(pool, "charging")
    for change in ("cap_minor = 1", "amount_minor = 1"):
        with pytest.raises(asyncpg.CheckViolationError, match="a cap only goes up"):
            await run_as_owner(database, f"UPDATE run_totals SET {change}")


async def test_the_workers_role_can_give_itself_no_cap(pool: Pool, control: ControlLedger) -> None:
    """What the proxy's caps are made of comes with the plan, and later rises only with who and why."""
    await make_run(pool, "charging", currencies=["usd"])
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await pool.execute("UPDATE run_totals SET cap_minor = 9000")
    with pytest.raises(asyncpg.CheckViolationError, match="it has been made"):
        await pool.execute(_TOTAL, RUN, "eur")
    with pytest.raises(asyncpg.CheckViolationError, match="is not planned again"):
        await pool.execute("UPDATE billing_runs SET phase = 'locked'")
    for daily in (False, True):
        with pytest.raises(asyncpg.CheckViolationError, match="no run has such a cap"):
            await pool.execute(_BUDGET, RUN, "eur", 9_000, daily)
    with pytest.raises(asyncpg.CheckViolationError):
        await pool.execute("SELECT raise_run_caps($1, '{usd}', '{9000}', '', '')", RUN)
    assert await control.raise_cap(RUN, {"usd": 9_000}, **BY) == CHANGED
    assert await pool.fetchval("SELECT cap_minor FROM vault_budgets WHERE budget = $1", RUN) == 9_000
    assert await actions(control) == ["cap_raised"]


async def test_a_plan_brings_no_cap_above_a_tenth_more_than_its_total(pool: Pool) -> None:
    """A cap begins at the total and a tenth, whatever the planner computes."""
    await make_run(pool, "locked")
    with pytest.raises(asyncpg.CheckViolationError, match="and a tenth"):
        await pool.execute("INSERT INTO run_totals VALUES ($1, 'usd', 1, 1000, 1101)", RUN)


async def test_the_audit_trail_is_only_added_to(pool: Pool, control: ControlLedger) -> None:
    """The role of the workers can neither change nor delete what was decided."""
    await make_run(pool, "charging")
    await control.hold(RUN, "paused", **BY)
    for statement in ("UPDATE run_events SET who = 'nobody'", "DELETE FROM run_events"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await pool.execute(statement)


async def test_a_run_that_is_not_there_has_no_standing(control: ControlLedger) -> None:
    """A mistyped run id is told as such."""
    with pytest.raises(RefusedToStart, match="no run"):
        await control.hold("nothing", "paused", **BY)


async def test_recovering_fences_what_the_old_workflow_had_claimed(
    ledger: ChargeLedger, control: ControlLedger, pool: Pool
) -> None:
    """A slice that survived its workflow commits no intent any more; the new owner claims and goes on."""
    await plant(pool)
    survivor = await claim_one(ledger)
    assert await control.recover(RUN, owner_before="owner", owner="second", **BY) == CHANGED
    assert await control.recover(RUN, owner_before="owner", owner="second", **BY) == STANDS
    with pytest.raises(StaleWrite):
        await intend(ledger, survivor)
    await intend(ledger, await claim_one(ledger))
    (event,) = await control.events(RUN)
    assert event.detail == {"owner_before": "owner", "owner": "second", "charges_fenced": 1}


async def test_only_the_owner_so_far_is_followed(pool: Pool, control: ControlLedger) -> None:
    """Of two that recover the same run one gets it, and the other is told whose it is."""
    await make_run(pool, "charging")
    both = await asyncio.gather(
        control.recover(RUN, owner_before="first", owner="second", **BY),
        control.recover(RUN, owner_before="first", owner="third", **BY),
    )
    assert sorted(ruling.changed for ruling in both) == [False, True]
    (refused,) = [ruling.refused for ruling in both if ruling.refused]
    assert "belongs to the execution" in refused
    assert await actions(control) == ["recovered"]


@pytest.mark.parametrize("decide", ["hold", "cancel"])
async def test_no_first_intent_commits_after_a_pause_or_a_cancel_has(
    ledger: ChargeLedger, control: ControlLedger, pool: Pool, decide: str
) -> None:
    """A sender that claimed its charge before is refused at its intent, and its charge stays as it was."""
    charge_id = await plant(pool)
    charge = await claim_one(ledger)
    if decide == "hold":
        await control.hold(RUN, "paused", **BY)
    else:
        await control.request_cancel(RUN, **BY)
    with pytest.raises(StaleWrite):
        await intend(ledger, charge)
    assert (await ledger.read(charge_id)).state is State.PLANNED
    if decide == "hold":
        await control.resume(RUN, **BY)
        await intend(ledger, charge)


async def test_a_pause_waits_for_an_intent_that_is_about_to_commit(
    ledger: ChargeLedger, control: ControlLedger, pool: Pool
) -> None:
    """Commits are in the order of truth: an intent that is through the gate commits before the pause."""
    await plant(pool)
    charge = await claim_one(ledger)
    async with pool.acquire() as connection:
        inside = connection.transaction()
        await inside.start()
        assert await connection.fetchval("SELECT run_may_begin($1)", RUN)
        pause = asyncio.create_task(control.hold(RUN, "paused", **BY))
        try:
            done, _ = await asyncio.wait({pause}, timeout=0.2)
            assert not done
        finally:
            await inside.commit()
    assert await pause == CHANGED
    with pytest.raises(StaleWrite):
        await intend(ledger, charge)


async def test_what_is_in_flight_is_counted_on_its_own(
    ledger: ChargeLedger, control: ControlLedger, runs: RunLedger, pool: Pool, database: Database
) -> None:
    """A held run carries on what is in flight alone, so that is what its due times are asked for."""
    await plant(pool, customer="cus_1")
    await intend(ledger, await claim_one(ledger))
    await plant(pool, customer="cus_2")
    (charge,) = [one for one in await ledger.claim_due(RUN, limit=10) if one.customer == "cus_1"]
    await ledger.defer(charge, seconds=60, reason="no answer")
    await control.hold(RUN, "paused", **BY)
    due = await runs.due(RUN)
    assert (due.open, due.in_flight, due.due_now, due.in_flight_due_now) == (2, 1, 1, 0)
    assert due.next_in_flight_due_seconds == pytest.approx(60)
    assert (due.hold, due.hold_reason, due.canceling) == ("paused", BY["reason"], False)
    await freeze_clock(database, seconds=61)
    assert (await runs.due(RUN)).in_flight_due_now == 1


async def test_the_canary_is_slice_0_without_what_was_skipped(
    control: ControlLedger, pool: Pool, database: Database
) -> None:
    """Declined, otherwise unpaid and unknown lines are told apart; the rest is paid or paying."""
    states = (
        State.SUCCEEDED, State.PROCESSING, State.DECLINED, State.REFUSED, State.NEEDS_CUSTOMER, State.REVIEW,
        State.CREATING, State.PLANNED, State.SKIPPED,
    )  # fmt: skip
    for number, state in enumerate(states):
        await plant(pool, state, customer=f"cus_{number}")
    beyond = await plant(pool, State.DECLINED, customer="cus_beyond")
    await run_as_owner(database, "UPDATE charges SET slice_no = 1 WHERE charge_id = $1", beyond)
    canary = await control.canary(RUN)
    assert (canary.lines, canary.declined, canary.not_paid_otherwise, canary.unknown) == (8, 1, 3, 2)
