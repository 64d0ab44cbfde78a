"""A row that was altered by hand gets back what is frozen with its PaymentIntent's key, and nothing else."""

import asyncpg
import pytest

from activities.carry import End
from activities.restore import Restored, restore_row
from tests.activities.scene import (
    AMOUNT_MINOR,
    CONFIRM,
    CREATE,
    CURRENCY,
    Scene,
    create_body,
)
from tests.activities.second_run import LATER, again, bill_again, close
from tests.reconcile.orphans import at_stripe
from workflows.domain.charge import Charge
from workflows.domain.keys import fingerprint
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS

REASON = "the row differs from what Stripe was asked for"
ALTERED = {
    "amount": "UPDATE charges SET amount_minor = 1",
    "currency": "UPDATE charges SET currency = 'eur'",
    "customer": "UPDATE charges SET customer = 'cus_somebody_else'",
    "all of them": "UPDATE charges SET amount_minor = 1, currency = 'eur', customer = 'cus_somebody_else'",
}


async def pay(scene: Scene) -> Charge:
    """Charge one customer."""
    await scene.plan()
    await scene.work()
    charge = await scene.charge()
    assert charge.state is State.SUCCEEDED
    return charge


async def restore(scene: Scene, charge: Charge | None = None) -> Restored:
    """Restore the only charge as it is now, or as it was read before."""
    row = charge or await scene.charge()
    found = await at_stripe(scene, row.payment_intent or "")
    return await restore_row(scene.pool, row, found, reason=REASON, who="tests")


@pytest.mark.parametrize("statement", ALTERED.values(), ids=ALTERED)
async def test_an_altered_row_gets_back_what_stripe_was_asked_for(scene: Scene, statement: str) -> None:
    """Key, Stripe and identity agree: the row is as before, with an alarm that says what it was."""
    before = await pay(scene)
    await scene.tamper(statement)
    altered = await scene.charge()
    assert altered != before
    restored = await restore(scene)
    assert restored.charge == before == await scene.charge()
    assert await scene.decisions() == [("restored", True)]
    row = await scene.pool.fetchrow("SELECT reason, evidence FROM decisions")
    assert row is not None
    assert REASON in row["reason"]
    assert row["evidence"]["who"] == "tests"
    assert row["evidence"]["before"]["amount_minor"] == altered.amount_minor
    assert row["evidence"]["after"] == {
        "amount_minor": AMOUNT_MINOR,
        "currency": CURRENCY,
        "customer": before.customer,
    }
    again_restored = await restore(scene)
    assert (again_restored.charge, again_restored.reason) == (
        None,
        "it is what Stripe was asked for already",
    )
    await scene.audit()


async def test_an_altered_row_in_flight_is_restored_and_goes_on(scene: Scene) -> None:
    """A confirm moves what its PaymentIntent is of, so the row may be mended at any moment."""
    a = scene.worker()
    await a.intend(await scene.prepare(a), CONFIRM)
    await scene.tamper(ALTERED["amount"])
    assert (await restore(scene)).charge is not None
    assert list((await scene.work()).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.SUCCEEDED
    await scene.audit()


async def test_a_row_whose_payment_intent_was_adopted_by_a_lookup_is_restored(scene: Scene) -> None:
    """No answer to the create is on record: what Stripe shows carries its key, and the decision says so."""
    a = scene.worker()
    await scene.plan()
    intent = await a.intend(await a.claim_one(), CREATE)
    await a.transmit(intent)
    await scene.work()
    before = await scene.charge()
    assert ("adopted", False) in await scene.decisions()
    await scene.tamper(ALTERED["all of them"])
    assert (await restore(scene)).charge == before


async def test_a_row_that_moved_since_it_was_read_is_left_alone(scene: Scene) -> None:
    """State, versions, PaymentIntent and body have to be those that were compared with Stripe."""
    charge = await scene.prepare(scene.worker())
    await scene.tamper(ALTERED["amount"])
    stale = await scene.charge()
    assert stale.payment_intent == charge.payment_intent
    await scene.work()
    restored = await restore(scene, stale)
    assert restored.charge is None
    assert "no longer as it was read" in restored.reason
    await scene.tamper("UPDATE charges SET amount_minor = 2")
    compared = await scene.charge()
    await scene.tamper("UPDATE charges SET amount_minor = 3")
    assert (await restore(scene, compared)).charge is None
    assert (await scene.charge()).amount_minor == 3
    assert ("restored", True) not in await scene.decisions()


async def test_another_payment_intent_than_the_row_s_own_restores_nothing(scene: Scene) -> None:
    """However right its amount is."""
    await scene.plan(["pm_card_visa_good", "pm_card_visa_good"])
    await scene.work()
    rows = await scene.pool.fetch("SELECT charge_id, payment_intent FROM charges ORDER BY charge_id")
    first, other = await scene.charge(rows[0]["charge_id"]), rows[1]["payment_intent"]
    await scene.tamper(f"UPDATE charges SET amount_minor = 1 WHERE charge_id = '{first.charge_id}'")
    altered = await scene.charge(first.charge_id)
    found = await at_stripe(scene, other)
    restored = await restore_row(scene.pool, altered, found, reason=REASON, who="tests")
    assert (restored.charge, restored.reason) == (
        None,
        f"{other} is not the charge's own PaymentIntent",
    )


async def test_a_key_whose_body_disagrees_with_stripe_restores_nothing(scene: Scene) -> None:
    """Ledger and Stripe tell two stories, and nobody can say by rule which of them is true."""
    charge = await pay(scene)
    key = charge.key_of(CREATE, 1)
    body = create_body(charge, amount_minor=AMOUNT_MINOR + 1, version=1)
    await scene.owner.execute(
        "UPDATE keys SET parameters = $2, fingerprint = $3 WHERE key = $1",
        *(key, body, fingerprint("/v1/payment_intents", body)),
    )
    await scene.tamper(ALTERED["amount"])
    restored = await restore(scene)
    assert (restored.charge, restored.reason) == (
        None,
        f"the body of {key} and Stripe disagree: people decide",
    )


async def test_a_key_that_was_altered_itself_restores_nothing(scene: Scene) -> None:
    """Its body does not have the fingerprint that was frozen with it."""
    charge = await pay(scene)
    key = charge.key_of(CREATE, 1)
    await scene.owner.execute("UPDATE keys SET parameters = replace(parameters, '4200', '4201')")
    await scene.tamper(ALTERED["amount"])
    restored = await restore(scene)
    assert (restored.charge, restored.reason) == (
        None,
        f"the body stored under {key} is not the one that was frozen",
    )


async def test_with_another_line_the_charge_would_be_another_one(scene: Scene) -> None:
    """What belongs to the identity and is not in the key's body can't be put back by rule."""
    await pay(scene)
    await scene.tamper("UPDATE charges SET amount_minor = 1, line = 'another'")
    restored = await restore(scene)
    assert (restored.charge, restored.reason) == (
        None,
        "with that customer the charge would be another one",
    )


async def test_a_payment_intent_of_an_earlier_create_restores_nothing(scene: Scene) -> None:
    """The row's version is not the one that made it: a later run may want another amount."""
    await pay(scene)
    await scene.tamper("UPDATE charges SET amount_minor = 1, create_version = 2")
    restored = await restore(scene)
    assert restored.charge is None
    assert "was never frozen" in restored.reason


async def test_a_correction_past_a_canceled_payment_intent_is_not_undone(scene: Scene) -> None:
    """A later run wants another amount, and PI1 is canceled: the row is right, the old key is not."""
    await scene.prepare(scene.worker())
    await scene.cancel()
    await scene.work()
    await close(scene)
    await bill_again(scene, again(amount_minor=AMOUNT_MINOR + 100))
    charge = await scene.charge()
    assert (charge.run_id, charge.amount_minor) == (LATER, AMOUNT_MINOR + 100)
    restored = await restore(scene)
    assert restored.charge is None
    assert "is canceled" in restored.reason
    await scene.set_age(WINDOW_SECONDS + 60)
    await scene.work(LATER)
    assert [movement.amount for movement in scene.sim.movements] == [AMOUNT_MINOR + 100]


@pytest.mark.parametrize("statement", ALTERED.values(), ids=ALTERED)
async def test_the_ledger_still_lets_nobody_alter_what_a_payment_intent_is_of(
    scene: Scene, statement: str
) -> None:
    """Neither a worker nor the owner, by hand or not, before or after a restore."""
    await pay(scene)
    for _ in range(2):
        for connection in (scene.pool, scene.owner):
            with pytest.raises(asyncpg.CheckViolationError):
                await connection.execute(statement)
        await scene.tamper(statement)
        assert (await restore(scene)).charge is not None


async def test_half_of_a_frozen_body_is_no_frozen_body(scene: Scene) -> None:
    """Amount and currency were altered: putting back the one without the other is refused."""
    await pay(scene)
    await scene.tamper("UPDATE charges SET amount_minor = 1, currency = 'eur'")
    with pytest.raises(asyncpg.CheckViolationError):
        await scene.pool.execute("UPDATE charges SET amount_minor = $1", AMOUNT_MINOR)


async def test_what_is_not_of_the_row_s_own_payment_intent_is_not_taken_for_it(scene: Scene) -> None:
    """The key's body is right, but nothing on record says that this PaymentIntent came of that key."""
    await pay(scene)
    await scene.owner.execute("UPDATE attempts SET payment_intent = 'pi_another'")
    await scene.tamper(ALTERED["amount"])
    with pytest.raises(asyncpg.CheckViolationError):
        await scene.pool.execute("UPDATE charges SET amount_minor = $1", AMOUNT_MINOR)
