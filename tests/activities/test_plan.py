"""Planning from real sources into a real ledger: what is planned is what was asked for, or nothing is."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from activities import crash_points, payment_methods
from activities.crash_points import CrashPoint
from activities.ledger.control import ControlLedger
from activities.ledger.runs import RunLedger
from tests.activities.planning import HEADER, RUN_ID, Plans, write_lines
from workflows.contracts import Canary
from workflows.domain.errors import InvalidInput, NothingWasSent
from workflows.domain.periods import Period


async def test_a_source_that_changes_while_it_is_read_is_refused(
    plans: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hash was right at the first look; by the last one it is another file, and nothing is planned."""
    source = plans.write("cus_1,usd,100,pm_1")
    request = await plans.locked(source)

    def change(point: CrashPoint) -> None:
        if point is CrashPoint.PLAN_WHILE_STREAMING:
            write_lines(source, "cus_1,usd,900,pm_1")

    monkeypatch.setattr(crash_points, "_hook", change)
    with pytest.raises(InvalidInput, match="has changed"):
        await plans.planner().plan(request)
    assert await plans.scene.pool.fetchval("SELECT count(*) FROM charges") == 0


async def test_a_planner_that_meets_silence_says_so(plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of one of many lookups arrives as itself: its type and message are what a history shows."""
    monkeypatch.setattr(payment_methods, "BACKOFF_SECONDS", 0.0)
    mute = {
        "name": "mute",
        "match": {"method": "GET", "path": "^/v1/customers"},
        "effect": {"kind": "error", "status": 500},
    }
    plans.scene.sim.set_faults(mute)
    request = await plans.locked(plans.write("cus_1,usd,100,", "cus_2,usd,100,"))
    with pytest.raises(NothingWasSent, match="does not say how cus_"):
        await plans.planner().plan(request)
    assert (await RunLedger(plans.scene.pool).read(RUN_ID)).phase == "locked"


async def test_a_preview_shows_the_plan_that_the_run_then_makes(plans: Plans) -> None:
    """Preview and run agree in every number and in the hash, and the preview leaves nothing behind."""
    plans.scene.sim.seed("cus_2", "pm_card_visa_2")
    rows = ("cus_1,usd,100,pm_1", "cus_2,eur,250,", "cus_3,usd,0,", "cus_4,usd,900,")
    request = plans.request(plans.write(*rows))
    preview = await plans.planner().preview(request)
    assert await plans.scene.pool.fetchval("SELECT count(*) FROM charges") == 0
    sums = {code: (found.lines, found.amount_minor) for code, found in preview.currencies.items()}
    assert sums == {"usd": (1, 100), "eur": (1, 250)}
    assert preview.currencies["eur"].cap_minor == 275
    assert [large.customer for large in preview.currencies["usd"].largest] == ["cus_1"]
    assert preview.skipped == {"customer_missing": 1, "zero_amount": 1}
    assert (preview.lookups.customers, preview.lookups.requests) == (2, 3)

    run = await plans.planned(*rows)
    assert (run.phase, run.plan_hash, run.selected) == ("charging", preview.plan_hash, 4)
    events = await ControlLedger(plans.scene.pool).events(RUN_ID)
    assert [event.action for event in events] == ["planned", "approved"]
    told = {**preview.document(), "source": run.source}
    assert events[0].detail == json.loads(json.dumps(told))


async def test_the_hash_is_of_what_is_charged(plans: Plans) -> None:
    """Another amount, currency, method or customer is another plan; another order or run is not."""

    async def hash_of(*rows: str, **changes: object) -> str:
        return (await plans.planner().preview(plans.request(plans.write(*rows), **changes))).plan_hash

    lines = ("cus_1,usd,100,pm_1", "cus_2,usd,200,pm_2")
    first = await hash_of(*lines)
    assert await hash_of(*lines, run_id=f"{RUN_ID}/r2") == first
    assert await hash_of(*reversed(lines)) == first
    assert await hash_of(*lines, "cus_3,usd,0,") != first
    for other in ("cus_2,usd,201,pm_2", "cus_2,eur,200,pm_2", "cus_2,usd,200,pm_3", "cus_3,usd,200,pm_2"):
        assert await hash_of(lines[0], other) != first, other
    assert await hash_of(lines[0]) != first


async def test_the_hash_covers_what_the_customer_reads(plans: Plans) -> None:
    """The description is sent with the charge: another one, or the same on another line, is another plan."""

    async def hash_of(*descriptions: str) -> str:
        rows = [f'cus_{number},usd,100,pm_1,"{text}"' for number, text in enumerate(descriptions)]
        path = plans.write(*rows, header=f"{HEADER.strip()},description\n")
        return (await plans.planner().preview(plans.request(path))).plan_hash

    first = await hash_of("March", "April")
    assert await hash_of("March", "April") == first
    assert await hash_of("March", "May") != first
    assert await hash_of("March", "") != first
    assert await hash_of("", "MarchApril") != await hash_of("MarchApril", "")


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    amounts=st.lists(st.integers(0, 3), max_size=12),
    batch_rows=st.integers(1, 13),
)
async def test_a_plan_does_not_depend_on_batches(plans: Plans, amounts: list[int], batch_rows: int) -> None:
    """However many rows are read at a time, the plan is the same one."""
    rows = [f"cus_{number},usd,{amount * 50},pm_{number}" for number, amount in enumerate(amounts)]
    request = plans.request(plans.write(*rows))
    whole = await plans.planner(batch_rows=1_000).preview(request)
    parts = await plans.planner(batch_rows=batch_rows).preview(request)
    assert parts == whole


async def test_an_approval_of_another_plan_is_refused(plans: Plans) -> None:
    """A run charges by itself only the plan that was approved; what is planned waits for its own hash."""
    preview = await plans.planner().preview(plans.request(plans.write("cus_1,usd,100,pm_1")))
    run = await plans.planned("cus_1,usd,101,pm_1", approved_hash=preview.plan_hash)
    assert (run.phase, run.approved_hash) == ("planned", None)
    control = ControlLedger(plans.scene.pool)
    stale = await control.approve(RUN_ID, preview.plan_hash, who="finance", reason="as previewed")
    assert (run.plan_hash or "no hash") in (stale.refused or "")
    assert (await control.approve(RUN_ID, run.plan_hash or "", who="finance", reason="as planned")).changed
    assert (await RunLedger(plans.scene.pool).read(RUN_ID)).phase == "charging"


@pytest.mark.parametrize("rule", [{"approve_any": True}, {"approve_within_minor": {"usd": 1_000}}])
async def test_no_rule_stands_for_the_hash_that_somebody_approved(
    plans: Plans, rule: dict[str, object]
) -> None:
    """Who approved one plan is asked about another, whatever else would have let it through."""
    preview = await plans.planner().preview(plans.request(plans.write("cus_1,usd,100,pm_1")))
    changed = await plans.planned("cus_1,usd,101,pm_1", approved_hash=preview.plan_hash, **rule)
    assert (changed.phase, changed.approved_hash) == ("planned", None)


async def test_a_plan_that_was_approved_beforehand_charges_at_once(plans: Plans) -> None:
    """The hash that a preview showed is all that an unattended start needs."""
    preview = await plans.planner().preview(plans.request(plans.write("cus_1,usd,100,pm_1")))
    run = await plans.planned("cus_1,usd,100,pm_1", approved_hash=preview.plan_hash)
    assert (run.phase, run.approved_hash) == ("charging", preview.plan_hash)
    totals = await plans.scene.pool.fetch("SELECT * FROM run_totals")
    assert [(row["currency"], row["lines"], row["amount_minor"], row["cap_minor"]) for row in totals] == [
        ("usd", 1, 100, 110)
    ]


async def test_the_canary_is_a_slice_of_its_own(plans: Plans) -> None:
    """The first lines that are charged are slice 0, however many are skipped between them."""
    rows = [f"cus_{number},usd,{0 if number in {2, 5} else 100},pm_1" for number in range(1, 10)]
    run = await plans.planned(*rows, canary=Canary(lines=3), slice_size=2)
    found = await plans.scene.pool.fetch(
        "SELECT slice_no, customer FROM charges WHERE state = 'planned' ORDER BY source_row"
    )
    slices: dict[int, list[str]] = {}
    for row in found:
        slices.setdefault(row["slice_no"], []).append(row["customer"].removeprefix("cus_"))
    assert slices == {0: ["1", "3", "4"], 1: ["6", "7"], 2: ["8", "9"]}
    assert run.slices == 3


async def test_a_plan_is_compared_with_the_previous_period(plans: Plans) -> None:
    """Who is new, gone, or changed by more than the percentage asked for, and by how much."""
    previous = str(Period.parse("2031-03").previous())
    before = [f"cus_{number},usd,1000,pm_1" for number in range(1, 6)]
    await plans.planned(*before, "cus_9,usd,0,", period=previous)
    now = ("cus_1,usd,1000,pm_1", "cus_2,usd,1201,pm_1", "cus_3,usd,1200,pm_1", "cus_4,eur,1000,pm_1")
    request = plans.request(plans.write(*now, "cus_8,usd,70,pm_1", "cus_9,usd,60,pm_1"))
    found = (await plans.planner().preview(request)).comparison
    assert found is not None
    assert (found.period, found.new, found.gone, found.changed, found.same) == (previous, 2, 1, 2, 2)
    widest = {kind: [change.customer for change in changes] for kind, changes in found.widest.items()}
    assert widest == {"new": ["cus_8", "cus_9"], "gone": ["cus_5"], "changed": ["cus_2", "cus_4"]}
    assert (found.widest["changed"][0].before_minor, found.widest["changed"][0].now_minor) == (1000, 1201)
    narrow = request.model_copy(update={"change_percent": 5.0})
    stricter = (await plans.planner().preview(narrow)).comparison
    assert stricter is not None
    assert stricter.changed == 3


async def test_the_first_period_has_nothing_to_be_compared_with(plans: Plans) -> None:
    """Where nobody was billed before, everybody would be new, and that says nothing."""
    request = plans.request(plans.write("cus_1,usd,100,pm_1"))
    assert (await plans.planner().preview(request)).comparison is None


async def test_a_planner_that_dies_leaves_nothing(plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its last moment before the commit nothing of the plan is there, and the next one plans it all."""
    request = await plans.locked(plans.write("cus_1,usd,100,pm_1", "cus_2,usd,0,pm_2"))

    def die(point: CrashPoint) -> None:
        if point is CrashPoint.PLAN_BEFORE_COMMIT:
            raise ConnectionAbortedError

    monkeypatch.setattr(crash_points, "_hook", die)
    with pytest.raises(ConnectionAbortedError):
        await plans.planner().plan(request)
    for table in ("charges", "skipped_rows", "run_totals", "run_events"):
        assert await plans.scene.pool.fetchval(f"SELECT count(*) FROM {table}") == 0, table
    monkeypatch.undo()
    assert (await plans.planner().plan(request)).selected == 2
