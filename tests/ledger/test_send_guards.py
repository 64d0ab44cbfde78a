from dataclasses import replace

import pytest

from activities.ledger.charges import ChargeLedger, Resend
from activities.ledger.database import Pool
from deploy.postgres import Database
from tests.ledger.planting import claim_one, first_send, freeze_clock, intend, plant
from workflows.domain.answer import Answer, PaymentIntent, Transport
from workflows.domain.charge import Intent, Outcome
from workflows.domain.errors import InvariantViolation, StaleWrite
from workflows.domain.keys import Operation
from workflows.domain.states import State
from workflows.domain.verdict import Cause, Proof, Verdict

CREATE, CONFIRM = Operation.CREATE, Operation.CONFIRM


def answered(intent: Intent, state: State | None, *, payment_intent: str = "pi_1") -> Outcome:
    """Return an answer that proves a state, or nothing."""
    status = {State.PREPARED: "requires_confirmation"}.get(state or State.REVIEW, str(state))
    found = PaymentIntent(payment_intent, status, 1250, "usd", created_epoch_seconds=0)
    verdict = (
        Verdict(Proof.PROVED, state=state, reason="test")
        if state
        else Verdict(Proof.UNKNOWN, cause=Cause.NO_ANSWER)
    )
    return Outcome(intent, Answer(Transport.ANSWERED, http_status=200, payment_intent=found), verdict)


async def test_an_intent_freezes_key_and_journals_its_attempt(ledger: ChargeLedger, pool: Pool) -> None:
    """State, key and attempt are one commit (I1, I7), and nothing of it is answered yet."""
    charge_id = await plant(pool)
    intent = await intend(ledger, await claim_one(ledger))
    assert (intent.key, intent.send_no, intent.first_send) == (f"create_{charge_id}_v1", 1, True)
    assert (await ledger.read(charge_id)).state is State.CREATING
    row = await pool.fetchrow("SELECT * FROM attempts")
    assert row is not None
    assert (row["key"], row["send_no"], row["answered_at"]) == (intent.key, 1, None)


@pytest.mark.parametrize(
    "changed",
    [
        {"fence": 0},
        {"run_id": "another"},
        {"payment_intent": "pi_2"},
        {"create_version": 1, "confirm_version": 0},
        {"state": State.PREPARED},
    ],
    ids=lambda changed: next(iter(changed)),
)
async def test_a_superseded_sender_commits_no_intent(
    ledger: ChargeLedger, pool: Pool, changed: dict[str, object]
) -> None:
    """Fence, run, state, version and PaymentIntent are all checked in the commit itself (I13)."""
    await plant(pool)
    charge = await claim_one(ledger)
    stale = replace(charge, **changed)  # type: ignore[arg-type]
    with pytest.raises(StaleWrite):
        await intend(ledger, stale)
    assert await pool.fetchval("SELECT count(*) FROM attempts") == 0


async def test_a_later_claim_makes_an_earlier_one_harmless(ledger: ChargeLedger, pool: Pool) -> None:
    """Two claims of one charge have two fences, and only the later one can send."""
    await plant(pool)
    earlier, later = await claim_one(ledger), await claim_one(ledger)
    assert later.fence > earlier.fence
    with pytest.raises(StaleWrite):
        await intend(ledger, earlier)
    await intend(ledger, later)


@pytest.mark.parametrize("operation", [CREATE, CONFIRM])
@pytest.mark.parametrize(("age_seconds", "allowed"), [(86_399, False), (86_400, True)])
async def test_a_version_waits_for_the_whole_window(
    database: Database,
    ledger: ChargeLedger,
    pool: Pool,
    operation: Operation,
    age_seconds: float,
    *,
    allowed: bool,
) -> None:
    """Version 2 is refused by the database one second before 24 h, and committed at 24 h (I4)."""
    charge_id = await plant(pool)
    charge = await claim_one(ledger)
    intent = await intend(ledger, charge)
    if operation is CONFIRM:
        charge = await ledger.record(answered(intent, State.PREPARED))
        await intend(ledger, charge, CONFIRM)
    await freeze_clock(database, seconds=age_seconds)
    again = await claim_one(ledger)
    if not allowed:
        with pytest.raises(StaleWrite):
            await intend(ledger, again, operation)
        return
    intent = await intend(ledger, again, operation)
    assert intent.key == f"{operation}_{charge_id}_v2"
    assert not intent.first_send


@pytest.mark.parametrize(("age_seconds", "allowed"), [(85_499, True), (85_500, False)])
async def test_a_key_is_not_resent_close_to_the_windows_end(
    database: Database, ledger: ChargeLedger, pool: Pool, age_seconds: float, *, allowed: bool
) -> None:
    """At 23:45 the database commits no further send of a key (I5)."""
    await plant(pool)
    intent = await intend(ledger, await claim_one(ledger))
    frozen, _ = await ledger.frozen_key(intent.key)
    await freeze_clock(database, seconds=age_seconds)
    resend = Resend(charge=await claim_one(ledger), frozen=frozen, reason="test")
    if not allowed:
        with pytest.raises(StaleWrite):
            await ledger.intend_again(resend)
        return
    assert (await ledger.intend_again(resend)).send_no == 2


async def test_a_body_that_is_not_the_frozen_one_is_never_resent(ledger: ChargeLedger, pool: Pool) -> None:
    """Parameters that do not match their fingerprint stop everything (I3)."""
    await plant(pool)
    intent = await intend(ledger, await claim_one(ledger))
    frozen, _ = await ledger.frozen_key(intent.key)
    charge = await claim_one(ledger)
    with pytest.raises(InvariantViolation):
        await ledger.intend_again(Resend(charge, replace(frozen, parameters='{"amount":1}'), reason="test"))


async def test_the_first_answer_to_a_send_stays(ledger: ChargeLedger, pool: Pool) -> None:
    """An attempt is answered once; what comes later under its number changes nothing in the journal."""
    await plant(pool)
    intent = await intend(ledger, await claim_one(ledger))
    await ledger.record(answered(intent, State.PREPARED))
    await ledger.record(answered(intent, None))
    assert await pool.fetchval("SELECT proof FROM attempts") == "proved"


async def test_a_late_answer_never_replaces_the_payment_intent(ledger: ChargeLedger, pool: Pool) -> None:
    """T2: a second answer to a create, with another PaymentIntent, leaves the row on its own (I11)."""
    charge_id = await plant(pool)
    intent = await intend(ledger, await claim_one(ledger))
    frozen, _ = await ledger.frozen_key(intent.key)
    resent = await ledger.intend_again(Resend(await claim_one(ledger), frozen, reason="test"))
    await ledger.record(answered(resent, State.PREPARED, payment_intent="pi_1"))
    now = await ledger.record(answered(intent, State.PREPARED, payment_intent="pi_2"))
    assert (now.payment_intent, now.state) == ("pi_1", State.PREPARED)
    assert (await ledger.read(charge_id)).payment_intent == "pi_1"


async def test_a_refusal_counts_only_for_the_only_attempt_ever(ledger: ChargeLedger, pool: Pool) -> None:
    """T6: with another attempt of the operation in the journal, a 400 does not book refused (I12)."""
    await plant(pool)
    first = await intend(ledger, await claim_one(ledger))
    frozen, _ = await ledger.frozen_key(first.key)
    await ledger.intend_again(Resend(await claim_one(ledger), frozen, reason="test"))
    assert (await ledger.record(answered(first, State.REFUSED))).state is State.CREATING


async def test_a_success_of_the_rows_own_payment_intent_always_applies(
    ledger: ChargeLedger, pool: Pool
) -> None:
    """The truth wins over whatever the row was concluded to be, and is never left again (I8, I14)."""
    await plant(pool)
    charge = await ledger.record(answered(await intend(ledger, await claim_one(ledger)), State.PREPARED))
    confirm = await intend(ledger, charge, CONFIRM)
    declined = await ledger.settle(
        confirm.charge, State.DECLINED, payment_intent="pi_1", latest_charge=None, reason="test"
    )
    assert declined.state is State.DECLINED
    assert (await ledger.record(answered(confirm, State.SUCCEEDED))).state is State.SUCCEEDED
    with pytest.raises(StaleWrite):
        await ledger.settle(
            confirm.charge, State.CANCELED, payment_intent="pi_1", latest_charge=None, reason="late"
        )


async def test_a_lookup_that_was_overtaken_does_not_apply(ledger: ChargeLedger, pool: Pool) -> None:
    """T8, T9: what a GET showed before the row moved says nothing about it afterwards (I14)."""
    await plant(pool)
    before = await claim_one(ledger)
    await intend(ledger, before)
    with pytest.raises(StaleWrite):
        await ledger.settle(
            before, State.PROCESSING, payment_intent="pi_1", latest_charge=None, reason="late"
        )


async def test_a_charge_that_waits_is_not_claimed_before_its_time(
    database: Database, ledger: ChargeLedger, pool: Pool
) -> None:
    """A due time counts by the ledger's clock (I10), for slices and for the rest alike."""
    charge_id = await plant(pool)
    charge = await claim_one(ledger)
    await ledger.defer(charge, seconds=3_600, reason="test")
    assert await ledger.claim_due(charge.run_id, limit=10) == []
    assert await ledger.claim_slice(charge.run_id, 0) == []
    await freeze_clock(database, hours=1)
    assert [due.charge_id for due in await ledger.claim_slice(charge.run_id, 0)] == [charge_id]


async def test_many_intents_of_one_moment_share_a_commit(ledger: ChargeLedger, pool: Pool) -> None:
    """A stale one among them fails alone."""
    for number in range(20):
        await plant(pool, customer=f"cus_{number}")
    charges = await ledger.claim_due((await ledger.read(await _any_charge(pool))).run_id, limit=100)
    sends = [
        first_send(charge if number else replace(charge, fence=0)) for number, charge in enumerate(charges)
    ]
    intents = await ledger._intend_first(sends)
    assert [intent is not None for intent in intents] == [False] + [True] * 19


async def _any_charge(pool: Pool) -> str:
    return str(await pool.fetchval("SELECT min(charge_id) FROM charges"))
