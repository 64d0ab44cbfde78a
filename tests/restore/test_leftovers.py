"""What a restored ledger does with PaymentIntents that it has forgotten: no two of a charge can be paid."""

import pytest

from activities.ledger.charges import FirstSend
from activities.ledger.restores import RestoreLedger
from activities.send import request_for
from tests.activities.scene import ACCOUNT, CREATE, GOOD_CARD, Scene
from tests.reconcile.orphans import at_stripe
from tests.restore.forgetful import clean, declare, forget, pay_and_restore
from tests.web.mailroom import Mailroom
from workflows.domain.errors import StaleWrite
from workflows.domain.keys import canonical_parameters
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS


async def leave(scene: Scene, *, creates: int) -> list[str]:
    """Let create v1 run so often, its key pruned in between, and forget it; return what is open at Stripe."""
    worker = scene.worker()
    await scene.plan([GOOD_CARD])
    intent = await worker.intend(await worker.claim_one(), CREATE)
    made = []
    for number in range(creates):
        await scene.set_age(number * (WINDOW_SECONDS + 60))
        answer = await worker.transmit(intent)
        assert answer.payment_intent is not None
        made.append(answer.payment_intent.id)
    assert len(set(made)) == creates
    await forget(scene)
    await declare(scene)
    return made


async def test_the_kept_one_is_what_is_paid_however_long_its_key_is_gone(mail: Mailroom) -> None:
    """A new create beside it would leave two that can be paid: a confirm of the first one may land late."""
    scene = mail.scene
    made = await leave(scene, creates=2)
    cleaning = await clean(mail)
    assert (cleaning.adopted, cleaning.canceled, cleaning.gaps) == (1, 1, [])
    await scene.set_age(9 * WINDOW_SECONDS)
    creates = scene.wire.count("create v1")
    await scene.work()
    charge = await scene.charge()
    assert (charge.state, charge.payment_intent) == (State.SUCCEEDED, made[-1])
    assert scene.wire.count("create v1") == creates
    assert await scene.open_at_stripe() == []
    assert len(scene.sim.movements) == 1


async def test_beside_a_paid_one_every_other_is_canceled(mail: Mailroom) -> None:
    """Recorded is what is paid, and nothing else of the charge stays open."""
    scene = mail.scene
    worker = scene.worker()
    await scene.plan([GOOD_CARD])
    intent = await worker.intend(await worker.claim_one(), CREATE)
    await worker.record(intent, await worker.transmit(intent))
    await worker.work()
    paid = await scene.charge()
    assert paid.state is State.SUCCEEDED
    await scene.set_age(WINDOW_SECONDS + 60)
    leftover = (await worker.transmit(intent)).payment_intent
    assert leftover is not None
    await forget(scene)
    await declare(scene)
    cleaning = await clean(mail)
    assert (cleaning.recorded, cleaning.canceled, cleaning.gaps) == (1, 1, [])
    assert (await scene.charge()).payment_intent == paid.payment_intent
    assert (await at_stripe(scene, leftover.id)).status == "canceled"


async def test_what_does_not_fit_the_charge_is_canceled_and_not_adopted(mail: Mailroom) -> None:
    """Of another amount: adopted by identity alone it would charge the wrong one (as in trace T5)."""
    scene = mail.scene
    made = await leave(scene, creates=1)
    await scene.owner.execute("UPDATE charges SET amount_minor = amount_minor + 1")
    cleaning = await clean(mail)
    assert (cleaning.adopted, cleaning.canceled, cleaning.gaps) == (0, 1, [])
    assert (await at_stripe(scene, made[0])).status == "canceled"
    assert (await scene.charge()).state is State.PLANNED


async def test_who_is_killed_between_remembering_and_adopting_leaves_nothing_that_is_lost(
    mail: Mailroom,
) -> None:
    """The create is on record and in flight then; looked at again, what it made is adopted."""
    scene = mail.scene
    made = await leave(scene, creates=1)
    charge, found = await scene.charge(), await at_stripe(scene, made[0])
    request = request_for(charge, CREATE)
    parameters = canonical_parameters(request.parameters)
    forgotten = FirstSend(charge, CREATE, request.path, parameters, reason="scripted")
    ledger = RestoreLedger(scene.pool)
    created = found.created_epoch_seconds
    assert (await ledger.remember_create(forgotten, created_epoch_seconds=created)).state is State.CREATING
    with pytest.raises(StaleWrite):
        await ledger.remember_create(forgotten, created_epoch_seconds=created)
    assert (await clean(mail)).adopted == 1
    charge = await scene.charge()
    assert (charge.state, charge.payment_intent) == (State.PREPARED, made[0])


async def test_nothing_is_remembered_of_a_ledger_that_was_not_restored(scene: Scene) -> None:
    """A key that no sender froze comes into the journal only while nobody can send."""
    await scene.plan([GOOD_CARD])
    charge = await scene.charge()
    request = request_for(charge, CREATE)
    parameters = canonical_parameters(request.parameters)
    forgotten = FirstSend(charge, CREATE, request.path, parameters, reason="scripted")
    with pytest.raises(StaleWrite):
        await RestoreLedger(scene.pool).remember_create(forgotten, created_epoch_seconds=1)


@pytest.mark.parametrize("state", ["canceled", "declined", "refused"])
async def test_what_a_forgotten_run_was_paid_is_recorded_where_the_charge_had_ended(
    mail: Mailroom, state: str
) -> None:
    """A later run that nobody remembers had taken it over: the next one would create it anew."""
    scene = mail.scene
    paid = await pay_and_restore(scene)
    await scene.owner.execute("UPDATE charges SET state = $1", state)
    await declare(scene)
    assert (await clean(mail)).recorded == 1
    charge = await scene.charge()
    assert (charge.state, charge.payment_intent) == (State.SUCCEEDED, paid.payment_intent)


async def test_what_was_paid_of_a_skipped_charge_is_named_as_lost(mail: Mailroom) -> None:
    """Skipped is never left but by a later run, which would create it anew."""
    scene = mail.scene
    paid = await pay_and_restore(scene)
    await scene.owner.execute("UPDATE charges SET state = 'skipped', reason = 'scripted'")
    await declare(scene)
    assert (await clean(mail)).strangers == [paid.payment_intent]


async def test_every_charge_that_goes_on_is_journaled_as_looked_at(mail: Mailroom) -> None:
    """Where Stripe shows nothing, too; and not where the account was not asked about: that clears nothing."""
    scene = mail.scene
    await scene.plan([GOOD_CARD])
    await declare(scene)
    ledger = RestoreLedger(scene.pool)
    restore = await ledger.open()
    assert restore is not None
    assert not await ledger.clear(restore, who="tests", why="scripted", counts={}, accounts=["acct_other"])
    assert await ledger.open() is not None
    await clean(mail)
    assert await ledger.open() is None
    assert await scene.decisions() == [("looked_at_after_restore", False)]
    assert ACCOUNT.id == (await scene.charge()).account
