"""A refund that a restored ledger has forgotten is found, and never made again."""

from tests.activities.scene import Scene
from tests.refunds.desk import Desk
from tests.restore.forgetful import clean, declare
from tests.web.mailroom import Mailroom
from workflows.domain.refund import RequestState
from workflows.domain.window import WINDOW_SECONDS


async def forget_refunds(scene: Scene) -> None:
    """Put the ledger back to where refunds were only asked for."""
    await scene.owner.execute("ALTER TABLE refund_requests DISABLE TRIGGER refund_requests_check_step")
    try:
        for statement in (
            "DELETE FROM refunds",
            "DELETE FROM attempts WHERE key LIKE 'refund%'",
            "DELETE FROM keys WHERE operation = 'refund'",
            "UPDATE refund_requests SET state = 'requested', refund_id = NULL, detail = NULL",
        ):
            await scene.owner.execute(statement)
    finally:
        await scene.owner.execute("ALTER TABLE refund_requests ENABLE TRIGGER refund_requests_check_step")


async def test_a_refund_of_before_the_restore_is_not_made_again_past_its_window(mail: Mailroom) -> None:
    """Its key is pruned at Stripe, and would give the money back a second time: the list is asked first."""
    desk, scene = Desk(mail), mail.scene
    request = await desk.ask(await desk.charge(), 1_000)
    await desk.carry(request)
    await forget_refunds(scene)
    await scene.set_age(2 * WINDOW_SECONDS)
    await declare(scene)
    posts = len(scene.posts)
    step = await desk.step(request)
    assert not step.is_done
    assert step.wait_seconds > 0
    await clean(mail)
    scene.fault("error", status=500, match={"method": "GET", "path": "refunds"})
    assert not (await desk.step(request)).is_done
    scene.clear_faults()
    assert (await desk.carry(request)).state == RequestState.MADE
    assert len(scene.posts) == posts
    assert desk.refunded() == [1_000]
    assert [row[1:] for row in await desk.rows()] == [(1_000, "succeeded")]


async def test_a_refund_that_was_only_asked_for_goes_out_once_the_restore_is_cleared(mail: Mailroom) -> None:
    """Stripe shows none of this request: another one of the same charge is not taken for it."""
    desk, scene = Desk(mail), mail.scene
    charge_id = await desk.charge()
    await desk.carry(await desk.ask(charge_id, 500))
    request = await desk.ask(charge_id, 1_000)
    await declare(scene)
    posts = len(scene.posts)
    assert not (await desk.step(request)).is_done
    assert len(scene.posts) == posts
    await clean(mail)
    assert (await desk.carry(request)).state == RequestState.MADE
    assert desk.refunded() == [500, 1_000]
