"""A ledger that is put back to where only the plan was in it, and what clears that."""

from datetime import timedelta

from activities.ledger.restores import RestoreLedger
from activities.restored import Cleaning, RestoreCleaner
from tests.activities.scene import ACCOUNT, Scene
from tests.web.mailroom import Mailroom
from workflows.domain.charge import Charge
from workflows.domain.states import State

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
    await forget(scene)
    return paid


async def forget(scene: Scene) -> None:
    """Put the ledger back to where only the plan was in it."""
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


async def declare(scene: Scene) -> None:
    """Say that the ledger was restored."""
    assert await RestoreLedger(scene.pool).declare(who="tests", why="scripted")


async def clean(mail: Mailroom) -> Cleaning:
    """Look through the account, and clear the restore where nothing is left to be asked."""
    ledger = RestoreLedger(mail.scene.pool)
    restore = await ledger.open()
    assert restore is not None
    since = restore.found_at - timedelta(days=35)
    cleaning = await RestoreCleaner(mail.scene.pool, mail.accounts).clean(ACCOUNT.id, since=since)
    if not cleaning.gaps:
        assert await ledger.clear(restore, who="tests", why="scripted", counts={}, accounts=[ACCOUNT.id])
    return cleaning
