"""The tables that a plan is made in: what is missing is asked for page by page, and no page is lost."""

from activities.ledger.database import Pool
from activities.ledger.frozen_plan import PlanTerms
from activities.ledger.planning import FoundMethod, PlanLedger, StagedLine
from tests.ledger.planting import ACCOUNT, PERIOD, RUN
from workflows.domain.keys import Identity

TERMS = PlanTerms(run_id=RUN, account=ACCOUNT, period=PERIOD, slice_lines=2)


def staged(
    number: int, *, payment_method: str | None = None, reason: str | None = None, line: str = "base"
) -> StagedLine:
    """Return a line on its way into the ledger."""
    customer = f"cus_{number:02d}"
    charge_id = Identity.of(ACCOUNT, customer, PERIOD, line).charge_id
    return StagedLine(charge_id, customer, line, number, "usd", 100, payment_method, None, reason)


async def test_customers_without_a_payment_method_come_page_by_page(pool: Pool) -> None:
    """Each is asked about once, and those with a method or a reason not at all."""
    async with PlanLedger(pool).planning(TERMS) as writer:
        await writer.stage([staged(number) for number in range(7)])
        await writer.stage([staged(number, line="usage") for number in range(7)])
        await writer.stage([staged(8, payment_method="pm_8"), staged(9, reason="zero_amount")])
        assert await writer.find_missing() == 7
        pages, last = [], 0
        while (page := await writer.missing(last, limit=3)).customers:
            pages.append(page.customers)
            last = page.last
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [customer for page in pages for customer in page] == [f"cus_{number:02d}" for number in range(7)]


async def test_what_was_found_out_reaches_every_line_of_the_customer(pool: Pool) -> None:
    """One answer decides both lines: a method charges them, a reason skips them."""
    async with PlanLedger(pool).planning(TERMS) as writer:
        await writer.stage([staged(1), staged(1, line="usage"), staged(2), staged(3, payment_method="pm_3")])
        await writer.find_missing()
        found = [FoundMethod("cus_01", "pm_1", None), FoundMethod("cus_02", None, "no_payment_method")]
        await writer.resolve(found)
        async with writer.freezing() as plan:
            [total] = await plan.totals()
            assert (total.lines, total.amount_minor, total.cap_minor) == (3, 300, 330)
            assert await plan.skips() == {"no_payment_method": 1}


async def test_a_plan_that_is_not_moved_leaves_nothing(pool: Pool) -> None:
    """A preview ends with its transaction: the next planner on the connection finds no table of it."""
    async with PlanLedger(pool).planning(TERMS) as writer:
        await writer.stage([staged(1, payment_method="pm_1")])
        async with writer.freezing() as plan:
            first = await plan.plan_hash()
        async with writer.freezing() as plan:
            assert await plan.plan_hash() == first
    assert await pool.fetchval("SELECT count(*) FROM charges") == 0
    left = "SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'"
    assert await pool.fetchval(left) == 0
