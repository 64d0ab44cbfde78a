"""The gate before first sends: what a run's standing allows, decided in the commit of the intent itself."""

import asyncio
from dataclasses import replace

import asyncpg
import pytest

from activities.ledger import sql
from activities.ledger.charges import ChargeLedger, Resend
from activities.ledger.control import ControlLedger
from activities.ledger.database import Pool
from deploy.postgres import Database
from tests.ledger.planting import RUN, claim_one, freeze_clock, intend, plant, run_as_owner
from tests.ledger.test_send_guards import answered
from workflows.domain.charge import Charge
from workflows.domain.errors import StaleWrite
from workflows.domain.keys import Operation
from workflows.domain.mode import Mode, claims_of
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS

CREATE, CONFIRM, CANCEL = Operation.CREATE, Operation.CONFIRM, Operation.CANCEL
DECISION = {"who": "tests", "reason": "scripted"}


async def prepared(ledger: ChargeLedger) -> Charge:
    """Bring the only charge to `prepared`."""
    return await ledger.record(answered(await intend(ledger, await claim_one(ledger)), State.PREPARED))


async def stand(database: Database, columns: str) -> None:
    """Write how the run stands, past the rule that its counts must add up."""
    counts = "ALTER TABLE billing_runs {} TRIGGER billing_runs_check_counts"
    await run_as_owner(database, counts.format("DISABLE"))
    await run_as_owner(database, f"UPDATE billing_runs SET {columns}")
    await run_as_owner(database, counts.format("ENABLE"))


HELD = {kind: f"hold = '{kind}', hold_reason = 'test'" for kind in ("paused", "canary", "breaker", "cap")} | {
    "canceling": "canceling = true",
    "planned": "phase = 'planned'",
    "closed": "phase = 'closed', counts = '{}'",
}


@pytest.mark.parametrize("columns", HELD.values(), ids=HELD.keys())
async def test_only_a_cancel_is_begun_unless_the_run_is_charging(
    database: Database, ledger: ChargeLedger, pool: Pool, columns: str
) -> None:
    """Held, being canceled, not approved or over: no first intent of a create or confirm commits.

    What makes sure that a PaymentIntent never moves money needs nobody's leave.
    """
    for customer in ("cus_1", "cus_2"):
        await plant(pool, customer=customer)
    first, planned = await ledger.claim_due(RUN, limit=2)
    second = await ledger.record(answered(await intend(ledger, planned), State.PREPARED))
    await stand(database, columns)
    for charge, operation in ((first, CREATE), (second, CONFIRM)):
        with pytest.raises(StaleWrite):
            await intend(ledger, charge, operation)
        assert await ledger.read(charge.charge_id) == charge
    assert await pool.fetchval("SELECT count(*) FROM keys") == 1
    assert (await intend(ledger, second, CANCEL)).charge.state is State.CANCELING


@pytest.mark.parametrize("columns", [HELD["paused"], HELD["canceling"]], ids=["paused", "canceling"])
async def test_a_key_in_flight_may_be_sent_again_and_no_version_is_opened(
    database: Database, ledger: ChargeLedger, pool: Pool, columns: str
) -> None:
    """What has been begun may settle; a re-key is something new like any first send."""
    await plant(pool)
    intent = await intend(ledger, await claim_one(ledger))
    await stand(database, columns)
    frozen, _ = await ledger.frozen_key(intent.key)
    assert (await ledger.intend_again(Resend(intent.charge, frozen, reason="test"))).send_no == 2
    await freeze_clock(database, seconds=WINDOW_SECONDS)
    with pytest.raises(StaleWrite):
        await intend(ledger, intent.charge)
    await stand(database, "hold = NULL, hold_reason = NULL, canceling = false")
    assert (await intend(ledger, intent.charge)).version == 2


async def plant_two_runs(database: Database, pool: Pool) -> None:
    """Plant a charge of the run, and one of a second run that is called `another`."""
    for customer in ("cus_1", "cus_2"):
        await plant(pool, customer=customer)
    await run_as_owner(
        database,
        "INSERT INTO billing_runs (run_id, account, period, owner, phase, source, source_sha256, started_by,"
        " selected, planned_at, locked_at, plan_hash, approved_hash)"
        " SELECT 'another', 'acct_other', period, owner, phase, source, source_sha256, started_by,"
        " selected, planned_at, locked_at, plan_hash, approved_hash FROM billing_runs",
    )
    await run_as_owner(database, "UPDATE charges SET run_id = 'another' WHERE customer = 'cus_2'")


async def test_one_held_run_does_not_stop_another_in_the_same_batch(
    database: Database, ledger: ChargeLedger, pool: Pool
) -> None:
    """Intents of several runs share a commit; each goes by its own run's standing."""
    await plant_two_runs(database, pool)
    charges = [*await ledger.claim_due(RUN, limit=9), *await ledger.claim_due("another", limit=9)]
    await ControlLedger(pool).hold(RUN, "paused", **DECISION)
    results = await asyncio.gather(*(intend(ledger, one) for one in charges), return_exceptions=True)
    assert [isinstance(result, StaleWrite) for result in results] == [True, False]


async def blocked(connection: "asyncpg.Connection[asyncpg.Record]", statements: int) -> None:
    """Return once so many statements wait for a lock; this server belongs to the test's process alone."""
    waiting = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted"
    async with asyncio.timeout(10):
        while await connection.fetchval(waiting) < statements:  # noqa: ASYNC110 - nobody signals
            await asyncio.sleep(0.01)


async def test_gates_of_several_runs_are_passed_in_one_order(
    database: Database, ledger: ChargeLedger, pool: Pool
) -> None:
    """Whoever waits at a gate holds none that comes after it, or batches and holds could deadlock."""
    await plant_two_runs(database, pool)
    charges = [*await ledger.claim_due(RUN, limit=9), *await ledger.claim_due("another", limit=9)]
    owner = await asyncpg.connect(database.owner_url)
    try:
        await owner.execute("SELECT pg_advisory_lock(7240912, run_gate('another'))")  # the first of the two
        intending = [asyncio.create_task(intend(ledger, one)) for one in charges]
        await blocked(owner, 1)
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted"
        assert await owner.fetchval(held) == 0
        await owner.execute("SELECT pg_advisory_unlock_all()")
        assert [intent.version for intent in await asyncio.gather(*intending)] == [1, 1]
    finally:
        await owner.close()


async def test_no_intent_with_an_older_view_commits_after_a_pause(
    database: Database, ledger: ChargeLedger, pool: Pool
) -> None:
    """An intent that began before the pause committed, and saw no hold, waits for it and is refused."""
    await plant(pool)
    charge = await claim_one(ledger)
    owner = await asyncpg.connect(database.owner_url)
    try:
        async with pool.acquire() as pausing:
            transaction = pausing.transaction()
            await transaction.start()
            hold = sql.load("control.sql")["hold"]
            assert await pausing.fetchval(hold, RUN, "paused", "tests", "scripted", "paused") is not None
            intending = asyncio.create_task(intend(ledger, charge))
            await blocked(owner, 1)
            await transaction.commit()
        with pytest.raises(StaleWrite):
            await intending
        assert await pool.fetchval("SELECT count(*) FROM keys") == 0
    finally:
        await owner.close()


async def test_a_pause_returns_when_intents_on_their_way_have_committed(
    database: Database, ledger: ChargeLedger, pool: Pool
) -> None:
    """The other way round: an intent that has passed the gate commits first, and the pause waits for it."""
    await plant(pool)
    charge = await claim_one(ledger)
    owner = await asyncpg.connect(database.owner_url)
    try:
        locking = owner.transaction()
        await locking.start()
        await owner.execute("SELECT FROM charges FOR UPDATE")
        intending = asyncio.create_task(intend(ledger, charge))
        await blocked(owner, 1)
        pausing = asyncio.create_task(ControlLedger(pool).hold(RUN, "paused", **DECISION))
        await blocked(owner, 2)
        assert not intending.done()
        assert not pausing.done()
        await locking.commit()
        assert (await pausing).changed
        assert await pool.fetchval("SELECT count(*) FROM keys") == 1
        assert (await intending).charge.state is State.CREATING
    finally:
        await owner.close()


async def test_a_new_create_needs_to_have_seen_the_payment_intent_canceled(
    database: Database, ledger: ChargeLedger, pool: Pool
) -> None:
    """I11: a declined charge has its PaymentIntent until an answer shows that very one canceled."""
    await plant(pool)
    confirm = await intend(ledger, await prepared(ledger), CONFIRM)
    declined = await ledger.record(answered(confirm, State.DECLINED))
    await freeze_clock(database, seconds=WINDOW_SECONDS)
    with pytest.raises(StaleWrite):
        await intend(ledger, declined)
    canceling = await intend(ledger, declined, CANCEL)
    canceled = await ledger.record(answered(canceling, State.CANCELED))
    assert (await intend(ledger, canceled)).charge.payment_intent is None


@pytest.mark.parametrize(
    ("shown", "allowed"), [("pi_1", True), ("pi_2", False)], ids=["that_very_one", "another"]
)
async def test_a_lookup_counts_only_for_the_payment_intent_that_it_showed(
    database: Database, ledger: ChargeLedger, pool: Pool, shown: str, *, allowed: bool
) -> None:
    """T3: "PI2 was canceled" says nothing about PI1, whose place a new create would take (I11)."""
    await plant(pool)
    confirm = await intend(ledger, await prepared(ledger), CONFIRM)
    await ledger.settle(
        confirm.charge, State.CANCELED, payment_intent=shown, latest_charge=None, reason="a lookup"
    )
    await freeze_clock(database, seconds=WINDOW_SECONDS)
    canceled = await ledger.read(confirm.charge.charge_id)
    assert (canceled.state, canceled.payment_intent) == (State.CANCELED, "pi_1")
    if allowed:
        assert (await intend(ledger, canceled)).version == 2
        return
    with pytest.raises(StaleWrite):
        await intend(ledger, canceled)


async def test_planned_charges_are_canceled_at_once_and_fenced(ledger: ChargeLedger, pool: Pool) -> None:
    """Nothing was sent, so nothing has to be asked; a sender that had claimed them is superseded."""
    for number in range(5):
        await plant(pool, customer=f"cus_{number}")
    claimed = await ledger.claim_slice(RUN, 0)
    assert await ledger.cancel_planned(RUN, None, limit=10) == 0  # nobody has canceled the run
    in_flight = (await intend(ledger, claimed[0])).charge
    await ControlLedger(pool).request_cancel(RUN, **DECISION)
    assert await ledger.cancel_planned(RUN, 1, limit=10) == 0
    assert await ledger.cancel_planned(RUN, 0, limit=3) == 3
    assert await ledger.cancel_planned(RUN, None, limit=10) == 1
    after = await ledger.read(claimed[1].charge_id)
    assert (after.state, after.reason) == (
        State.CANCELED,
        "canceled with the run: nothing of it is open at Stripe",
    )
    assert after.fence > claimed[1].fence
    assert (await ledger.read(in_flight.charge_id)).state is State.CREATING


@pytest.mark.parametrize("proof", ["not_executed", "unknown", "none"])
async def test_a_create_is_canceled_unasked_only_where_no_send_of_it_was_executed(
    ledger: ChargeLedger, pool: Pool, proof: str
) -> None:
    """I12: every attempt has an answer, and each says that it did nothing; or Stripe has to be asked."""
    await plant(pool)
    charge = (await intend(ledger, await claim_one(ledger))).charge
    if proof != "none":
        await pool.execute("UPDATE attempts SET answered_at = ledger_now(), proof = $1", proof)
    assert await ledger.cancel_unsent(charge) is None  # nobody has canceled the run
    await ControlLedger(pool).request_cancel(RUN, **DECISION)
    assert await ledger.cancel_unsent(replace(charge, fence=charge.fence - 1)) is None
    canceled = await ledger.cancel_unsent(charge)
    assert (canceled is not None) is (proof == "not_executed")


async def test_a_cancel_claims_what_waits_for_anything_but_a_lookup(ledger: ChargeLedger, pool: Pool) -> None:
    """Due and claimed before its time is a charge that waited to be confirmed, not a create unanswered."""
    await plant(pool)
    creating = (await intend(ledger, await claim_one(ledger))).charge
    await ledger.defer(creating, seconds=60, reason="test")
    await ControlLedger(pool).request_cancel(RUN, **DECISION)
    claims = claims_of(Mode.CANCELING)
    assert await ledger.claim_due(RUN, limit=9, claims=claims) == []
    assert await pool.fetchval(sql.load("runs.sql")["due_summary"], RUN, column=2) == 0
    await pool.execute("UPDATE charges SET state = 'prepared', payment_intent = 'pi_1'")
    await ledger.defer(await ledger.read(creating.charge_id), seconds=60, reason="test")
    assert await pool.fetchval(sql.load("runs.sql")["due_summary"], RUN, column=2) == 1
    assert len(await ledger.claim_due(RUN, limit=9, claims=claims)) == 1
