import asyncio

import asyncpg
import pytest

from activities.ledger.database import Pool, open_pool
from activities.ledger.frozen_plan import PlanTerms
from activities.ledger.planning import PlanLedger, SkippedRow, StagedLine
from activities.ledger.runs import Run, RunLedger
from deploy.postgres import Database
from tests.ledger.planting import close_run, commit_plan, finish_plan, run_as_owner
from workflows.domain.errors import RefusedToStart, StaleWrite
from workflows.domain.keys import Identity

ACCOUNT, PERIOD = "acct_sim", "2031-03"
RUN = f"billing-run/{ACCOUNT}/{PERIOD}"


@pytest.fixture
def runs(pool: Pool) -> RunLedger:
    """The runs of an empty ledger."""
    return RunLedger(pool)


async def lock(runs: RunLedger, run_id: str = RUN, owner: str = "first") -> Run:
    """Ask for the lock."""
    return await runs.lock(
        run_id,
        account=ACCOUNT,
        period=PERIOD,
        owner=owner,
        source="s",
        source_sha256="ab",
        started_by="tests",
    )


def staged(row: int, customer: str) -> StagedLine:
    """Return a line on its way into the ledger."""
    charge_id = Identity.of(ACCOUNT, customer, PERIOD, "base").charge_id
    return StagedLine(charge_id, customer, "base", row, "usd", 1_250, "pm_1", None, None)


def terms(run_id: str = RUN) -> PlanTerms:
    """Return how a run is cut into slices."""
    return PlanTerms(run_id=run_id, account=ACCOUNT, period=PERIOD, slice_lines=2)


async def plan(pool: Pool, run_id: str = RUN, *, lines: int = 5, selected: int | None = None) -> Run:
    """Lock and plan a run with one line that can't be billed."""
    await lock(RunLedger(pool), run_id)
    rows = [staged(row, f"cus_{row}") for row in range(2, 2 + lines)]
    skips = [SkippedRow(99, "cus_9", "base", "can_not_be_billed", "-1")]
    return await commit_plan(pool, terms(run_id), rows, skips, selected=selected)


async def test_a_period_has_one_run_at_a_time(runs: RunLedger) -> None:
    """Of two starters at the same instant one gets the lock, and the other is told who has it."""
    both = await asyncio.gather(lock(runs, "run_a"), lock(runs, "run_b"))
    assert len({run.run_id for run in both}) == 1


async def test_the_lock_is_idempotent_for_its_own_workflow(runs: RunLedger) -> None:
    """A retry that lost its answer finds its own row; another execution sees that it is not its own."""
    first = await lock(runs)
    assert await lock(runs) == first
    assert (await lock(runs, owner="second")).owner == "first"


async def test_a_failed_run_gives_the_period_back(runs: RunLedger) -> None:
    """A run that planned nothing does not block the period."""
    await lock(runs, "run_a")
    await runs.fail("run_a", "the source has errors")
    assert (await lock(runs, "run_b")).run_id == "run_b"


async def test_a_plan_has_slices_counts_and_no_second_edition(runs: RunLedger, pool: Pool) -> None:
    """Lines are cut into slices in the source's order, and another attempt at planning is refused."""
    run = await plan(pool)
    assert (run.phase, run.selected, run.slices) == ("charging", 6, 3)
    assert await runs.counts(RUN) == {"planned": 5, "skipped_rows": 1}
    with pytest.raises(StaleWrite):
        await plan(pool)
    assert await runs.counts(RUN) == {"planned": 5, "skipped_rows": 1}


async def test_a_plan_whose_counts_do_not_add_up_is_refused(runs: RunLedger, pool: Pool) -> None:
    """I9 holds from the first moment, or nothing of the plan exists."""
    with pytest.raises(StaleWrite):
        await plan(pool, selected=7)
    assert await runs.counts(RUN) == {}
    assert (await runs.read(RUN)).phase == "locked"


async def test_a_plan_that_comes_too_late_leaves_nothing(runs: RunLedger, pool: Pool) -> None:
    """A planner thaws after its run gave the period back: the next run finds its lines free."""
    await lock(runs)
    async with PlanLedger(pool).planning(terms()) as writer:
        await writer.stage([staged(2, "cus_2")])
        await runs.fail(RUN, "the source has changed")
        with pytest.raises(StaleWrite):
            await finish_plan(writer, selected=1)
    assert await pool.fetchval("SELECT count(*) FROM charges") == 0
    assert (await plan(pool, f"{RUN}/r2")).selected == 6
    assert await runs.counts(f"{RUN}/r2") == {"planned": 5, "skipped_rows": 1}


async def test_a_planned_run_is_not_given_up(runs: RunLedger, pool: Pool) -> None:
    """An attempt that refuses the source after another has planned it hears so: somebody charges this run."""
    await plan(pool)
    with pytest.raises(StaleWrite):
        await runs.fail(RUN, "the source has changed")
    assert (await runs.read(RUN)).phase == "charging"


async def test_a_session_with_leftovers_plans_again(database: Database) -> None:
    """A planner that was cut off while it tidied up does not spoil its connection for the next one."""
    async with open_pool(database.app_url, connections=1) as pool:
        await pool.execute("CREATE TEMPORARY TABLE staged_lines (left_over int)")
        assert (await plan(pool)).selected == 6


async def test_what_another_run_owns_is_skipped_with_its_owner(runs: RunLedger, pool: Pool) -> None:
    """A later run for the same period plans only what is missing."""
    await plan(pool)
    await pool.execute("UPDATE charges SET state = 'succeeded'")
    await close_run(pool)
    later = await plan(pool, f"{RUN}/r2", lines=7)
    assert later.selected == 8
    assert await runs.counts(later.run_id) == {"planned": 2, "skipped_rows": 6}
    owners = await pool.fetch("SELECT detail FROM skipped_rows WHERE reason = 'already_charged'")
    assert all(RUN in row["detail"] for row in owners)


async def test_a_run_closes_only_over_settled_lines(pool: Pool) -> None:
    """Nobody is forgotten: while a line is open the run stays open, and closing twice changes nothing."""
    await plan(pool)
    with pytest.raises(StaleWrite):
        await close_run(pool)
    await pool.execute("UPDATE charges SET state = 'canceled'")
    closed = await close_run(pool)
    assert closed.counts == {"canceled": 5, "skipped_rows": 1, "taken_over": 0}
    assert await close_run(pool) == closed


async def test_a_run_with_a_lost_line_can_not_close(pool: Pool, database: Database) -> None:
    """The database itself refuses counts that do not add up to what was selected (I9)."""
    await plan(pool)
    await pool.execute("UPDATE charges SET state = 'canceled'")
    await run_as_owner(database, "DELETE FROM skipped_rows")
    with pytest.raises(asyncpg.CheckViolationError, match="6 lines were selected, but 5"):
        await close_run(pool)


async def test_a_run_that_is_not_there_is_refused(runs: RunLedger) -> None:
    """A mistyped run id is told as such."""
    with pytest.raises(RefusedToStart, match="no run"):
        await runs.read("nothing")
