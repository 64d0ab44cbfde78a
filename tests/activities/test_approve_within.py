import pytest

from activities.ledger.control import ControlLedger
from tests.activities.planning import RUN_ID, Plans
from tests.activities.scene import PERIOD

LINED = "customer,currency,amount_minor,payment_method,line\n"
ROWS = ("cus_1,usd,100,pm_1", "cus_2,usd,250,pm_2", "cus_3,eur,900,pm_3")


@pytest.mark.parametrize(
    ("limits", "approved"),
    [
        ({"usd": 350, "eur": 900}, True),
        ({"usd": 349, "eur": 900}, False),
        ({"usd": 350}, False),
        ({"usd": 350, "eur": 900, "jpy": 1}, True),
        ({}, False),
    ],
)
async def test_a_plan_within_its_limits_approves_itself(
    plans: Plans, *, limits: dict[str, int], approved: bool
) -> None:
    """Every currency of the plan must be within its limit: one that is not named waits for a person."""
    run = await plans.planned(*ROWS, approve_any=False, approve_within_minor=limits)
    assert run.phase == ("charging" if approved else "planned")
    events = await ControlLedger(plans.scene.pool).events(RUN_ID)
    assert [event.action for event in events] == ["planned", "approved"][: 1 + approved]
    if approved:
        assert events[-1].reason.startswith("plans within ")
        assert "3.50 USD" in events[-1].reason


async def test_a_preview_says_what_each_customer_would_pay(plans: Plans) -> None:
    """One amount a customer and currency, over all lines that would be charged, and nothing is kept."""
    rows = ("cus_1,usd,100,pm_1", "cus_1,usd,50,pm_1,extra", "cus_1,eur,70,pm_1,euro", "cus_2,usd,0,pm_2")
    lined = [f"{row},base" if row.count(",") == 3 else row for row in rows]
    source = plans.write(*lined, header=LINED)
    summary, customers = await plans.planner().preview_customers(plans.request(source))
    assert [tuple(one) for one in customers] == [("cus_1", "eur", 1, 70), ("cus_1", "usd", 2, 150)]
    assert (summary.lines, summary.period) == (3, PERIOD)
    assert await plans.scene.pool.fetchval("SELECT count(*) FROM charges") == 0
