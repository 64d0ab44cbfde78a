"""A later run of the same period beside the first one of a scene: it plans what is missing and takes over."""

from activities.ledger.frozen_plan import PlanTerms
from activities.ledger.planning import StagedLine
from activities.ledger.runs import Run, RunLedger
from tests.activities.scene import ACCOUNT, GOOD_CARD, PERIOD, RUN_ID, Scene, staged_line
from tests.ledger.planting import close_run, commit_plan

LATER = f"{RUN_ID}/r2"


async def close(scene: Scene, run_id: str = RUN_ID) -> Run:
    """Close a run whose lines are all settled."""
    return await close_run(scene.pool, run_id)


async def bill_again(scene: Scene, *lines: StagedLine, run_id: str = LATER, approved: bool = True) -> Run:
    """Lock and plan a later run over these lines, approved beforehand unless it is not."""
    for line in lines:
        scene.sim.seed(line.customer, line.payment_method or GOOD_CARD)
    await RunLedger(scene.pool).lock(
        run_id,
        account=ACCOUNT.id,
        period=PERIOD,
        owner=f"execution of {run_id}",
        source="again.csv",
        source_sha256="1" * 64,
        started_by="tests",
    )
    terms = PlanTerms(run_id=run_id, account=ACCOUNT.id, period=PERIOD, slice_lines=500)
    return await commit_plan(scene.pool, terms, lines, approved=approved)


def again(
    number: int = 1,
    card: str = GOOD_CARD,
    *,
    amount_minor: int | None = None,
    currency: str | None = None,
    description: str | None = None,
) -> StagedLine:
    """Return the line of customer `number` once more, paying by another card, and corrected if so asked."""
    line = staged_line(number, f"{card}_again")
    return line._replace(
        amount_minor=line.amount_minor if amount_minor is None else amount_minor,
        currency=currency or line.currency,
        description=description,
    )


async def counts(scene: Scene, run_id: str) -> dict[str, int]:
    """Return a run's lines by standing, once they are known to add up to what it selected (I9)."""
    ledger = RunLedger(scene.pool)
    found = await ledger.counts(run_id)
    assert sum(found.values()) == (await ledger.read(run_id)).selected, f"I9: {run_id}"
    return found


async def kept(scene: Scene, run_id: str = LATER) -> dict[str, str]:
    """Return why lines are not charged by a run, by customer."""
    rows = await scene.pool.fetch("SELECT customer, reason FROM skipped_rows WHERE run_id = $1", run_id)
    return {row["customer"]: row["reason"] for row in rows}
