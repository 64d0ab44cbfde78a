"""Trace T4 as far as there is something against it: a ledger that was restored from before a create.

Past the window nothing stops a run that goes on before anybody has reconciled: that waits for the restore
rule.
"""

from activities.ledger.charges import ChargeLedger
from activities.ledger.inbox import InboxLedger
from activities.ledger.money_back import MoneyBackLedger
from activities.merge import LookEnd, Merger, Subject
from tests.activities.scene import Scene
from tests.reconcile.orphans import parts_of
from tests.web.mailroom import Mailroom
from workflows.domain.charge import Charge
from workflows.domain.merge import About
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS

PLANNED_AGAIN = """
UPDATE charges SET state = 'planned', create_version = 0, confirm_version = 0, payment_intent = NULL,
                   latest_charge = NULL, reason = NULL
"""


async def pay_and_restore(scene: Scene) -> Charge:
    """Charge one customer, then put the ledger back to where only the plan was in it; return what is lost."""
    await scene.plan()
    await scene.work()
    paid = await scene.charge()
    assert paid.state is State.SUCCEEDED
    await scene.owner.execute("ALTER TABLE charges DISABLE TRIGGER charges_check_step")
    try:
        for statement in (
            "DELETE FROM decisions",
            "DELETE FROM attempts",
            "DELETE FROM keys",
            PLANNED_AGAIN,
        ):
            await scene.owner.execute(statement)
    finally:
        await scene.owner.execute("ALTER TABLE charges ENABLE TRIGGER charges_check_step")
    return paid


async def test_t4_within_the_window_stripe_replays_what_the_restored_ledger_has_forgotten(
    mail: Mailroom,
) -> None:
    """Keys are derived, and nothing that varies enters them: create v1 and confirm v1 are the same again."""
    scene = mail.scene
    paid = await pay_and_restore(scene)
    await scene.set_age(WINDOW_SECONDS / 2)
    await scene.work()
    charge = await scene.charge()
    assert (charge.state, charge.payment_intent) == (State.SUCCEEDED, paid.payment_intent)
    assert len(scene.sim.movements) == 1


async def test_t4_past_the_window_what_is_recorded_before_the_run_goes_on_is_not_charged_again(
    mail: Mailroom,
) -> None:
    """The keys are pruned, but Stripe's word was merged first: planned becomes succeeded, with an alarm."""
    scene = mail.scene
    paid = await pay_and_restore(scene)
    await scene.set_age(2 * WINDOW_SECONDS)
    merger = Merger(
        await parts_of(mail.accounts),
        charges=ChargeLedger(scene.pool),
        inbox=InboxLedger(scene.pool),
        money_back=MoneyBackLedger(scene.pool),
    )
    look = await merger.look(
        Subject(paid.payment_intent or "", paid.charge_id, frozenset({About.PAYMENT}), event_ids=())
    )
    assert look.end is LookEnd.MERGED
    assert await scene.work() == {}
    charge = await scene.charge()
    assert (charge.state, charge.payment_intent) == (State.SUCCEEDED, paid.payment_intent)
    assert await scene.alarms() == 1
    assert len(scene.sim.movements) == 1
