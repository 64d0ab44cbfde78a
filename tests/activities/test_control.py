"""Decisions on their way into the ledger: what it will never take is an answer, not a retry."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
from temporalio.testing import ActivityEnvironment

from activities.control import ControlActivities
from activities.ledger.control import ControlLedger
from activities.ledger.database import Pool, open_pool
from activities.ledger.runs import RunLedger
from deploy.postgres import Database
from tests.ledger.planting import ACCOUNT, RUN
from tests.ledger.test_control import make_run
from workflows.contracts import CAP_MINOR_MAX, CapRaise, Decision, RunKey, Standing
from workflows.control_contracts import RULE, CapRaiseRequest, ControlRequest
from workflows.domain.errors import StaleWrite

KEY = RunKey(run_id=RUN, account=ACCOUNT)


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    """A ledger with a run that waits for approval."""
    async with open_pool(database.app_url, connections=2) as opened:
        await make_run(opened, "planned")
        yield opened


def control_of(pool: Pool) -> ControlActivities:
    """Return the activities of a process with this ledger."""
    return ControlActivities(control=ControlLedger(pool), runs=RunLedger(pool))


async def raise_cap(pool: Pool, who: str) -> Standing:
    """Ask for a cap that no column can keep, past the contract."""
    wanted = CapRaise.model_construct(who=who, reason="a late order", caps_minor={"usd": CAP_MINOR_MAX + 1})
    request = CapRaiseRequest.model_construct(run=KEY, cap_raise=wanted)
    return await ActivityEnvironment().run(control_of(pool).raise_cap, request)


async def release_canary(pool: Pool, who: str) -> Standing:
    """Let a run past its canary that charges nobody yet: the row never stands as this write expects it."""
    request = ControlRequest(run=KEY, decision=Decision(who=who, reason="it went well"))
    return await ActivityEnvironment().run(control_of(pool).release_canary, request)


async def test_what_the_ledger_never_takes_is_refused(pool: Pool) -> None:
    """Retried without end it would keep every later decision about the run waiting behind it."""
    assert "DataError" in ((await raise_cap(pool, "ops@host")).refused or "")
    assert "StaleWrite" in ((await release_canary(pool, "ops@host")).refused or "")
    assert await ControlLedger(pool).events(RUN) == []


async def test_a_rules_decision_is_tried_until_it_is_written(pool: Pool) -> None:
    """Nobody hears a refusal of it, and a run that is to be held must not go on."""
    with pytest.raises(asyncpg.DataError):
        await raise_cap(pool, RULE)
    with pytest.raises(StaleWrite):
        await release_canary(pool, RULE)


async def test_a_ledger_that_is_away_refuses_nothing(pool: Pool) -> None:
    """A connection comes back; the decision waits for it."""
    await pool.close()
    with pytest.raises(asyncpg.InterfaceError):
        await release_canary(pool, "ops@host")
