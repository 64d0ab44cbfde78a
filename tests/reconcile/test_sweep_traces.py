"""Trace T7 in both orders: a sweep and the adoption of what it has listed exclude each other.

A sender's answer and a settler's lookup adopt a PaymentIntent by writing the charge's row, and a sweep locks
that row. The guard against a stale row stands in `tests.activities.test_model_traces_of_lookups`.
"""

import asyncio

import pytest

from activities.carry import LATER_SECONDS_MAX, End
from activities.crash_points import CrashPoint
from activities.ledger.charges import _SQL
from activities.ledger.sweep import Orphan, SweepLedger
from activities.sweep import SweepEnd
from tests.activities.scene import CONFIRM, CREATE, Scene
from tests.activities.second_run import LATER, again, bill_again, close
from tests.reconcile.orphans import at_stripe, cancels, leave_orphan, sweep, sweep_and_die
from tests.web.mailroom import Mailroom
from workflows.domain.answer import Answer
from workflows.domain.charge import Charge, Intent
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS


async def create_unrecorded(scene: Scene) -> tuple[Intent, Answer, str]:
    """Let A's create be answered, and freeze A before it records that."""
    a = scene.worker()
    await scene.plan()
    intent = await a.intend(await a.claim_one(), CREATE)
    answer = await a.transmit(intent)
    assert answer.payment_intent is not None
    return intent, answer, answer.payment_intent.id


async def test_t7_a_sweep_is_refused_while_the_create_s_answer_is_not_recorded(mail: Mailroom) -> None:
    """Create answered, PI1 unknown to the ledger: listed, and left alone; then recorded and paid."""
    scene = mail.scene
    intent, answer, listed = await create_unrecorded(scene)
    swept = await sweep(mail, await scene.charge(), listed)
    assert (swept.end, await cancels(scene)) == (SweepEnd.NOT_NOW, [])
    await scene.worker().record(intent, answer)
    await scene.work()
    charge = await scene.charge()
    assert (charge.state, charge.payment_intent) == (State.SUCCEEDED, listed)
    await scene.audit()


async def test_t7_what_is_recorded_between_the_sweep_s_look_and_its_intent_is_not_canceled(
    mail: Mailroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trace itself: the sweep has looked, PI1 is recorded, the sweep's intent is refused."""
    scene = mail.scene
    intent, answer, listed = await create_unrecorded(scene)
    intend = SweepLedger.intend

    async def be_overtaken(ledger: SweepLedger, orphan: Orphan) -> Intent:
        await scene.worker().record(intent, answer)
        return await intend(ledger, orphan)

    monkeypatch.setattr(SweepLedger, "intend", be_overtaken)
    swept = await sweep(mail, await scene.charge(), listed)
    assert (swept.end, swept.reason) == (SweepEnd.NOT_NOW, f"{listed} is the charge's own by now")
    assert await cancels(scene) == []
    await scene.work()
    assert (await scene.charge()).state is State.SUCCEEDED
    await scene.audit()


async def test_t7_a_sweep_waits_for_an_adoption_that_is_about_to_commit(mail: Mailroom) -> None:
    """A settler has written the row and not committed: the sweep waits for the lock, and sees it then."""
    scene = mail.scene
    _, _, listed = await create_unrecorded(scene)
    charge = await scene.charge()
    async with scene.pool.acquire() as connection, connection.transaction():
        adopted = await connection.fetchrow(_SQL["settle_charge"], *adopting(charge, listed))
        assert adopted is not None
        sweeping = asyncio.create_task(sweep(mail, charge, listed))
        await scene.wait_for_a_blocked_statement()
    swept = await sweeping
    assert (swept.end, swept.reason) == (SweepEnd.NOT_NOW, f"{listed} is the charge's own by now")
    assert (await at_stripe(scene, listed)).status == "requires_confirmation"


def adopting(charge: Charge, payment_intent: str) -> tuple[object, ...]:
    """Return what a settler writes that adopts a PaymentIntent."""
    before = (charge.charge_id, charge.state, charge.create_version, charge.confirm_version, None)
    return (*before, State.PREPARED, payment_intent, None, "found", "adopted", False, {})


async def leave_unfound(scene: Scene) -> tuple[Charge, Intent]:
    """Cancel a run whose create is nowhere at Stripe past its window; its sender A is still frozen."""
    a = scene.worker()
    await scene.plan()
    intent = await a.intend(await a.claim_one(), CREATE)
    await scene.cancel()
    await scene.set_age(WINDOW_SECONDS + 60)
    assert list((await scene.work()).values()) == [End.SETTLED]
    charge = await scene.charge()
    assert (charge.state, charge.payment_intent) == (State.CANCELED, None)
    return charge, intent


async def test_t7_a_sweep_s_intent_first_and_the_late_answer_adopts_nothing(mail: Mailroom) -> None:
    """A thaws, PI1 is made; the sweep intends its cancel; A's answer moves nothing, and PI1 ends canceled."""
    scene = mail.scene
    charge, intent = await leave_unfound(scene)
    a = scene.worker()
    answer = await a.transmit(intent)
    assert answer.payment_intent is not None
    orphan = answer.payment_intent.id
    await sweep_and_die(mail, charge, orphan, CrashPoint.CANCEL_AFTER_INTENT)
    recorded = await a.record(intent, answer)
    assert (recorded.state, recorded.payment_intent) == (State.CANCELED, None)
    assert (await sweep(mail, charge, orphan)).end is SweepEnd.CANCELED
    assert (await at_stripe(scene, orphan)).status == "canceled"
    assert scene.sim.movements == []
    await scene.audit()


async def test_t7_what_a_sweep_has_intended_to_cancel_is_never_confirmed_by_a_later_run(
    mail: Mailroom,
) -> None:
    """The sweep dies with its intent, a later run takes the charge over: it cancels PI1, and pays PI2."""
    scene = mail.scene
    charge, intent = await leave_unfound(scene)
    answer = await scene.worker().transmit(intent)
    assert answer.payment_intent is not None
    orphan = answer.payment_intent.id
    await sweep_and_die(mail, charge, orphan, CrashPoint.CANCEL_AFTER_INTENT)
    await close(scene)
    await bill_again(scene, again())
    age = WINDOW_SECONDS + 60.0
    while not (await scene.charge()).is_settled:
        await scene.work(LATER)
        age += LATER_SECONDS_MAX
        assert age < 5 * WINDOW_SECONDS
        await scene.set_age(age)
    paid = await scene.charge()
    assert paid.state is State.SUCCEEDED
    assert paid.payment_intent not in {None, orphan}
    assert (await at_stripe(scene, orphan)).status == "canceled"
    assert [key for key, _, _ in await cancels(scene)] == [f"cancel_{orphan}_v1", f"cancel_{orphan}_v2"]
    await scene.audit()


async def test_t7_settling_never_adopts_what_a_cancel_was_intended_for(mail: Mailroom) -> None:
    """As if the guard of the states were gone: the row is creating again, and the list shows PI1."""
    scene = mail.scene
    charge, intent = await leave_unfound(scene)
    a = scene.worker()
    answer = await a.transmit(intent)
    assert answer.payment_intent is not None
    await sweep_and_die(mail, charge, answer.payment_intent.id, CrashPoint.CANCEL_AFTER_INTENT)
    await scene.owner.execute("ALTER TABLE charges DISABLE TRIGGER charges_check_step")
    try:
        await scene.owner.execute("UPDATE charges SET state = 'creating'")
    finally:
        await scene.owner.execute("ALTER TABLE charges ENABLE TRIGGER charges_check_step")
    await a.settler.settle(await scene.charge())
    after = await scene.charge()
    assert (after.state, after.payment_intent) == (State.CREATING, None)
    assert scene.wire == ["create v1"]


async def test_t2_the_second_payment_intent_of_a_pruned_create_is_swept_and_never_confirmed(
    mail: Mailroom,
) -> None:
    """Two answers for create v1: the first is the charge's own, the second is canceled."""
    scene = mail.scene
    left = await leave_orphan(scene)
    assert (await sweep(mail, left.charge, left.orphan)).end is SweepEnd.CANCELED
    await scene.work()
    assert {movement.payment_intent for movement in scene.sim.movements} == {left.charge.payment_intent}
    refused = await scene.worker().gateway.post(
        CONFIRM,
        account=scene.worker().sender._account,
        path=f"/v1/payment_intents/{left.orphan}/confirm",
        parameters={"off_session": True, "payment_method": left.charge.payment_method},
        key=left.charge.key_of(CONFIRM, 9),
    )
    assert refused.http_status == 400
    assert len(scene.sim.movements) == 1
