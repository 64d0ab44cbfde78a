"""Rows of a ledger as a test wants to find them, and a hand on its clock."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import asyncpg

from activities.ledger.charges import ChargeLedger, FirstSend
from activities.ledger.closing import close_with_report
from activities.ledger.database import Pool
from activities.ledger.frozen_plan import PlanRecord, PlanTerms
from activities.ledger.planning import PlanLedger, PlanWriter, SkippedRow, StagedLine
from activities.ledger.runs import Run
from deploy.postgres import Database
from workflows.domain.charge import Charge, Intent
from workflows.domain.keys import Identity, Operation
from workflows.domain.states import State

RUN, ACCOUNT, PERIOD = "billing-run/acct_sim/2031-03", "acct_sim", "2031-03"
NOON = datetime(2031, 3, 1, 12, tzinfo=UTC)

_RUN = """
INSERT INTO billing_runs (run_id, account, period, owner, phase, source, source_sha256, started_by, selected,
                          planned_at, locked_at, plan_hash, approved_hash)
VALUES ($1, $2, $3, 'owner', 'charging', 'charges.csv', 'ab', 'tests', 1, ledger_now(), ledger_now(),
        'planted', 'planted')
ON CONFLICT DO NOTHING
"""
_CHARGE = """
INSERT INTO charges (charge_id, run_id, account, customer, period, line, source_row, slice_no, currency,
                     amount_minor, payment_method, state, reason, payment_intent, changed_at)
VALUES ($1, $2, $3, $4, $5, 'base', 2, 0, 'usd', 1250, 'pm_1', $6, 'planted', $7, ledger_now())
"""


async def plant(
    pool: Pool, state: State = State.PLANNED, *, customer: str = "cus_1", payment_intent: str | None = None
) -> str:
    """Insert a charge in a state, with its run, and return its id."""
    charge_id = Identity.of(ACCOUNT, customer, PERIOD, "base").charge_id
    await pool.execute(_RUN, RUN, ACCOUNT, PERIOD)
    await pool.execute(_CHARGE, charge_id, RUN, ACCOUNT, customer, PERIOD, state, payment_intent)
    return charge_id


async def commit_plan(
    pool: Pool,
    terms: PlanTerms,
    lines: Sequence[StagedLine],
    skips: Sequence[SkippedRow] = (),
    *,
    selected: int | None = None,
    approved: bool = True,
) -> Run:
    """Plan these lines for a run that holds its lock, as a planner does."""
    async with PlanLedger(pool).planning(terms) as writer:
        await writer.stage(lines)
        await writer.skip(skips)
        selected = len(lines) + len(skips) if selected is None else selected
        return await finish_plan(writer, selected=selected, approved=approved)


async def finish_plan(writer: PlanWriter, *, selected: int, approved: bool = True) -> Run:
    """Freeze what a writer has gathered, and keep it."""
    await writer.find_missing()
    async with writer.freezing() as plan:
        record = PlanRecord(
            selected=selected,
            plan_hash=await plan.plan_hash(),
            planned_by="tests",
            approved_because="any plan was approved beforehand" if approved else None,
            summary={},
        )
        return await plan.move(record, await plan.totals())


async def close_run(pool: Pool, run_id: str = RUN) -> Run:
    """Close a run, with a report in which nothing stands."""
    return await close_with_report(pool, run_id, lambda _facts: {})


async def claim_one(ledger: ChargeLedger) -> Charge:
    """Claim the only charge that is due."""
    (charge,) = await ledger.claim_due(RUN, limit=10)
    return charge


def first_send(charge: Charge, operation: Operation = Operation.CREATE) -> FirstSend:
    """Return a first send of the next version of an operation."""
    return FirstSend(charge=charge, operation=operation, path="/v1/x", parameters="{}", reason="test")


async def intend(ledger: ChargeLedger, charge: Charge, operation: Operation = Operation.CREATE) -> Intent:
    """Commit a first send."""
    return await ledger.intend_first(first_send(charge, operation))


async def freeze_clock(database: Database, *, hours: float = 0, seconds: float = 0) -> None:
    """Stop the ledger's clock so long after the noon at which these tests begin."""
    at = NOON + timedelta(hours=hours, seconds=seconds)
    await run_as_owner(database, "SELECT move_ledger_clock(0, $1)", at)


async def run_as_owner(database: Database, statement: str, *parameters: object) -> None:
    """Run one statement as the schema's owner."""
    connection = await asyncpg.connect(database.owner_url)
    try:
        await connection.execute(statement, *parameters)
    finally:
        await connection.close()
