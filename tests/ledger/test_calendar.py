from collections.abc import AsyncIterator

import pytest

from activities.ledger.calendar import CalendarLedger, PeriodDecision, Waiver
from activities.ledger.clock import advance_clock
from activities.ledger.database import Pool, open_pool
from activities.ledger.runs import RunLedger
from deploy.postgres import Database
from workflows.domain.errors import InvariantViolation

ACCOUNT = "acct_1"
MONTHS = ["2031-01", "2031-02", "2031-03"]


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    """An empty ledger."""
    async with open_pool(database.app_url, connections=2) as opened:
        yield opened


async def lock(pool: Pool, run_id: str, period: str, *, account: str = ACCOUNT) -> None:
    """Have a run of the period."""
    await RunLedger(pool).lock(
        run_id,
        account=account,
        period=period,
        owner=run_id,
        source="x",
        source_sha256="0",
        started_by="tests",
    )


async def test_the_next_run_of_a_period_is_named(pool: Pool) -> None:
    """The first has the period's own id; after one that failed comes /r2, and one that counts is named."""
    ledger, runs = CalendarLedger(pool), RunLedger(pool)
    first = await ledger.next_run(ACCOUNT, "2031-03")
    assert (first.run_id, first.owner) == ("billing-run/acct_1/2031-03", None)
    await lock(pool, first.run_id, "2031-03")
    held = await ledger.next_run(ACCOUNT, "2031-03")
    assert held.owner is not None
    assert (held.run_id, held.owner.run_id, held.owner.phase) == (
        f"{first.run_id}/r2",
        first.run_id,
        "locked",
    )
    await runs.fail(first.run_id, "the source has changed")
    free = await ledger.next_run(ACCOUNT, "2031-03")
    assert (free.run_id, free.owner) == (f"{first.run_id}/r2", None)
    assert (await ledger.next_run("acct_2", "2031-03")).run_id == "billing-run/acct_2/2031-03"


async def test_a_period_is_unbilled_until_it_has_a_run_or_is_waived(pool: Pool) -> None:
    """Failed runs and runs of other accounts do not bill a period; the newest decision about it counts."""
    ledger, runs = CalendarLedger(pool), RunLedger(pool)
    assert await ledger.unbilled(ACCOUNT, MONTHS) == MONTHS
    await lock(pool, "a", MONTHS[0])
    await lock(pool, "b", MONTHS[1])
    await runs.fail("b", "no such file")
    await lock(pool, "c", MONTHS[2], account="acct_2")
    assert await ledger.unbilled(ACCOUNT, MONTHS) == MONTHS[1:]

    async def decide(decision: PeriodDecision) -> None:
        await ledger.decide(ACCOUNT, MONTHS[1], decision, schedule="monthly", who="tests", reason="to see")

    await decide(PeriodDecision.WAIVE)
    assert await ledger.unbilled(ACCOUNT, MONTHS) == MONTHS[2:]
    assert await ledger.waiver(ACCOUNT, MONTHS[1]) == Waiver(who="tests", reason="to see")
    assert await ledger.unbilled("acct_3", MONTHS) == MONTHS
    await decide(PeriodDecision.BILL)
    assert await ledger.waiver(ACCOUNT, MONTHS[1]) is None
    assert await ledger.unbilled(ACCOUNT, MONTHS) == MONTHS[1:]
    assert await ledger.unbilled(ACCOUNT, []) == []


async def test_nobody_decides_without_a_reason(pool: Pool) -> None:
    """A period that is never billed has somebody who said so, and why."""
    ledger = CalendarLedger(pool)
    for who, reason in (("", "why"), ("tests", "")):
        with pytest.raises(InvariantViolation):
            await ledger.decide(
                ACCOUNT, MONTHS[0], PeriodDecision.WAIVE, schedule="monthly", who=who, reason=reason
            )


async def test_the_calendar_goes_by_the_clock_of_the_ledger(pool: Pool, database: Database) -> None:
    """What is due is due by the ledger's time, which drills may move."""
    before = await CalendarLedger(pool).now()
    await advance_clock(database.owner_url, 40 * 86_400)
    assert (await CalendarLedger(pool).now() - before).days == 40
