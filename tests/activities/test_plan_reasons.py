"""Every line that is not charged has one stored reason, and who is done with a line may hand it on."""

import asyncio
import urllib.request

import pytest

from activities.ledger.charges import ChargeLedger
from activities.ledger.control import ControlLedger
from activities.ledger.frozen_plan import PlanRecord
from activities.ledger.runs import RunLedger
from tests.activities.planning import RUN_ID, Plans
from tests.activities.scene import API_KEY
from tests.ledger.planting import close_run
from workflows.contracts import BelowMinimum
from workflows.domain.errors import InvalidInput, StaleWrite
from workflows.domain.money import minimum_minor
from workflows.domain.skips import SkipReason

LATER = f"{RUN_ID}/r2"


async def delete_customer(plans: Plans, customer: str) -> None:
    """Delete a customer at the simulated Stripe, as the merchant's own program would."""
    url = f"{plans.scene.sim.url}/v1/customers/{customer}"
    request = urllib.request.Request(url, method="DELETE", headers={"Authorization": f"Bearer {API_KEY}"})
    await asyncio.to_thread(lambda: urllib.request.urlopen(request).close())


async def test_how_a_customer_pays_is_found_out_or_is_the_reason(plans: Plans) -> None:
    """The invoice default, then the only card; with several, none, or no customer the line is skipped."""
    sim = plans.scene.sim
    sim.seed("cus_default", "pm_card_visa_1", "pm_card_visa_2", default="pm_card_visa_2")
    sim.seed("cus_one", "pm_card_visa_3")
    sim.seed("cus_none")
    sim.seed("cus_several", "pm_card_visa_4", "pm_card_visa_5")
    sim.seed("cus_deleted", "pm_card_visa_6")
    await delete_customer(plans, "cus_deleted")
    names = ("default", "one", "none", "several", "missing", "deleted")
    await plans.planned(*(f"cus_{name},usd,100," for name in names))
    assert await plans.states() == {
        "cus_default": ("planned", None),
        "cus_one": ("planned", None),
        "cus_none": ("skipped", SkipReason.NO_PAYMENT_METHOD),
        "cus_several": ("skipped", SkipReason.SEVERAL_PAYMENT_METHODS),
        "cus_missing": ("skipped", SkipReason.CUSTOMER_MISSING),
        "cus_deleted": ("skipped", SkipReason.CUSTOMER_DELETED),
    }
    methods = await plans.scene.pool.fetch(
        "SELECT customer, payment_method FROM charges WHERE state = 'planned'"
    )
    assert {row["customer"]: row["payment_method"] for row in methods} == {
        "cus_default": "pm_card_visa_2",
        "cus_one": "pm_card_visa_3",
    }


async def test_a_customer_is_asked_about_once(plans: Plans) -> None:
    """Two lines of one customer cost one question, and what is skipped anyway costs none."""
    plans.scene.sim.seed("cus_1", "pm_card_visa_1", default="pm_card_visa_1")
    header = "customer,currency,amount_minor,line\n"
    source = plans.write("cus_1,usd,100,base", "cus_1,usd,50,usage", "cus_2,usd,0,base", header=header)
    preview = await plans.planner().preview(plans.request(source))
    assert (preview.lines, preview.lookups.customers, preview.lookups.requests) == (2, 1, 1)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (BelowMinimum.CARRY_FORWARD, SkipReason.BELOW_MINIMUM_CARRIED_FORWARD),
        (BelowMinimum.WAIVE, SkipReason.BELOW_MINIMUM_WAIVED),
        (BelowMinimum.CHARGE, None),
    ],
)
async def test_a_line_below_the_minimum_goes_by_policy(
    plans: Plans, policy: BelowMinimum, reason: SkipReason | None
) -> None:
    """49 cents are owed later, given up, or sent all the same; 50 are charged, and 0 never is."""
    minimum = minimum_minor("usd")
    assert minimum == 50
    await plans.planned(
        f"cus_1,usd,{minimum - 1},pm_1", f"cus_2,usd,{minimum},pm_1", "cus_3,usd,0,pm_1", "cus_4,bif,1,pm_1",
        below_minimum=policy,
    )  # fmt: skip
    assert await plans.states() == {
        "cus_1": ("planned" if reason is None else "skipped", reason),
        "cus_2": ("planned", None),
        "cus_3": ("skipped", SkipReason.ZERO_AMOUNT),
        "cus_4": ("planned", None),  # no minimum is documented
    }
    summary = (await ControlLedger(plans.scene.pool).events(RUN_ID))[0].detail
    assert summary["below_minimum"] == (1 if reason is None else 0)  # what Stripe will refuse is foretold


async def test_what_can_not_be_billed_is_refused_or_has_its_reason(plans: Plans) -> None:
    """A currency that Stripe does not take and a broken amount stop the plan, or are recorded if so asked."""
    rows = ("cus_1,zzz,100,pm_1", "cus_2,usd,x,pm_1", "cus_3,usd,100,pm_1")
    with pytest.raises(InvalidInput, match="2 problems"):
        await plans.planner().preview(plans.request(plans.write(*rows)))
    run = await plans.planned(*rows, skip_invalid=True)
    assert run.selected == 3
    skipped = await plans.skipped()
    assert {customer: reason for customer, (reason, _) in skipped.items()} == {
        "cus_1": SkipReason.CURRENCY_UNSUPPORTED,
        "cus_2": SkipReason.CAN_NOT_BE_BILLED,
    }
    assert "zzz" in skipped["cus_1"][1]


@pytest.mark.parametrize("only", [1, 2])
async def test_one_customer_who_can_not_be_asked_about_holds_nobody_up(plans: Plans, only: int) -> None:
    """A question that Stripe refuses for good, the first or the second, skips its lines and says why."""
    sim = plans.scene.sim
    sim.seed("cus_=odd", "pm_card_visa_1")
    sim.seed("cus_1", "pm_card_visa_2")
    path = "cus_=odd$" if only == 1 else "cus_=odd/payment_methods$"
    sim.set_faults(
        {
            "name": "no",
            "match": {"method": "GET", "path": path},
            "effect": {"kind": "error", "status": 400, "code": "odd"},
        }
    )
    rows = (
        "cus_=odd,usd,100,,base",
        "cus_=odd,usd,0,,zero",
        "cus_=odd,usd,100,pm_1,known",
        "cus_1,usd,100,,base",
    )
    header = "customer,currency,amount_minor,payment_method,line\n"
    source = plans.write(*rows, header=header)
    preview = await plans.planner().preview(plans.request(source))
    run = await plans.planner().plan(await plans.locked(source))
    assert (run.selected, run.plan_hash) == (4, preview.plan_hash)
    assert preview.skipped == {SkipReason.CAN_NOT_BE_BILLED: 1, SkipReason.ZERO_AMOUNT: 1}
    [(reason, detail)] = (await plans.skipped()).values()
    assert reason == SkipReason.CAN_NOT_BE_BILLED
    assert "HTTP 400" in detail
    rows_of = await plans.scene.pool.fetch("SELECT line, customer, state FROM charges ORDER BY source_row")
    assert [(row["line"], row["state"]) for row in rows_of] == [
        ("zero", "skipped"),
        ("known", "planned"),
        ("base", "planned"),
    ]


async def test_what_another_run_has_is_named_with_that_run(plans: Plans) -> None:
    """A later run asks Stripe nothing about lines that another one charged, and says whose they are."""
    plans.scene.sim.seed("cus_1", "pm_card_visa_1")
    await plans.planned("cus_1,usd,100,", "cus_2,usd,100,pm_2")
    await plans.scene.pool.execute("UPDATE charges SET state = 'succeeded'")
    await close_run(plans.scene.pool, RUN_ID)
    source = plans.write("cus_1,usd,100,", "cus_2,usd,0,pm_2", "cus_3,usd,100,pm_3")
    request = await plans.locked(source, run_id=LATER)
    preview = await plans.planner().preview(request)
    assert preview.lookups.customers == 0
    run = await plans.planner().plan(request)
    assert run.plan_hash == preview.plan_hash
    reason = (SkipReason.ALREADY_CHARGED, f"by run {RUN_ID}, now succeeded")
    assert await plans.skipped(LATER) == {"cus_1": reason, "cus_2": reason}
    assert await plans.states(LATER) == {"cus_3": ("planned", None)}


async def test_a_line_that_was_never_sent_is_taken_over(plans: Plans) -> None:
    """Canceled or skipped before anything was sent: a later run may have it, and both runs' counts say so."""
    pool = plans.scene.pool
    await plans.planned("cus_1,usd,100,pm_1", "cus_2,usd,0,pm_2", "cus_3,usd,100,pm_3", "cus_4,usd,100,pm_4")
    ledger = ChargeLedger(pool)
    before = {charge.customer: charge for charge in await ledger.claim_due(RUN_ID, limit=10)}
    await pool.execute("UPDATE charges SET state = 'canceled' WHERE customer IN ('cus_1', 'cus_4')")
    await pool.execute("UPDATE charges SET state = 'succeeded' WHERE customer = 'cus_3'")
    await close_run(pool, RUN_ID)
    rows = ("cus_1,eur,900,pm_9", "cus_2,usd,200,pm_2", "cus_3,usd,100,pm_3", "cus_4,usd,0,pm_4")
    run = await plans.planned(*rows, run_id=LATER)
    assert (run.selected, run.phase) == (4, "charging")
    assert await plans.states(LATER) == {"cus_1": ("planned", None), "cus_2": ("planned", None)}
    assert {customer: reason for customer, (reason, _) in (await plans.skipped(LATER)).items()} == {
        "cus_3": SkipReason.ALREADY_CHARGED,
        "cus_4": SkipReason.ZERO_AMOUNT,  # it stays with the earlier run: there is nothing to take
    }
    assert await RunLedger(pool).counts(RUN_ID) == {"canceled": 1, "succeeded": 1, "taken_over": 2}
    taken = await pool.fetch("SELECT * FROM takeovers ORDER BY currency, amount_minor")
    assert [(row["from_run"], row["to_run"], row["from_state"], row["amount_minor"]) for row in taken] == [
        (RUN_ID, LATER, "skipped", 0),
        (RUN_ID, LATER, "canceled", 100),
    ]
    [charge] = [charge for charge in await ledger.claim_due(LATER, limit=10) if charge.customer == "cus_1"]
    assert (charge.amount_minor, charge.currency, charge.payment_method) == (900, "eur", "pm_9")
    assert charge.fence > before["cus_1"].fence + 1


async def test_a_line_that_moves_on_while_it_is_taken_over_is_planned_again(plans: Plans) -> None:
    """Between the decision and the move the charge is somebody else's: nothing of this plan is kept."""
    pool = plans.scene.pool
    await plans.planned("cus_1,usd,100,pm_1")
    await pool.execute("UPDATE charges SET state = 'canceled'")
    await close_run(pool, RUN_ID)
    request = await plans.locked(plans.write("cus_1,usd,100,pm_1"), run_id=LATER)
    planner = plans.planner()
    async with planner._frozen(request) as (plan, summary):
        await pool.execute("UPDATE charges SET state = 'succeeded'")
        record = PlanRecord(
            selected=1, plan_hash=summary.plan_hash, planned_by="tests", approved_because="x", summary={}
        )
        with pytest.raises(StaleWrite, match="moved on"):
            await plan.move(record, summary.totals())
    assert await pool.fetchval("SELECT count(*) FROM takeovers") == 0
    assert (await planner.plan(request)).selected == 1
    assert await plans.states(LATER) == {}
