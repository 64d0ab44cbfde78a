"""What comes in through webhooks, by way of chargeonce's own receiver and inbox.

The simulator signs and delivers over a socket, as often and in the order that an at-least-once delivery may.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.activities.scene import CONFIRM, Scene
from tests.failure_modes.ours import confirm_and_vanish
from tests.web.mailroom import open_mailroom
from tests.web.postbox import open_postbox, register, settings_for
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS


@asynccontextmanager
async def webhooks(scene: Scene) -> AsyncIterator[None]:
    """Deliver to a receiver whatever happens meanwhile; on the way out, wait for it and work through it."""
    async with open_mailroom(scene) as mail, open_postbox(settings_for(scene.database)) as box:
        register(scene, box)
        yield
        await scene.sim.deliver()
        assert {attempt.status for attempt in scene.sim.deliveries} == {200}
        await mail.work()
        assert await scene.pool.fetchval("SELECT count(*) FROM inbox_events WHERE state = 'waiting'") == 0


async def take_in_one_event_twice(scene: Scene) -> None:
    """One `payment_intent.succeeded`, delivered twice: one row, one look, one write."""
    scene.sim.set_webhook_faults({"name": "twice", "effect": {"kind": "duplicate"}})
    async with webhooks(scene):
        await confirm_and_vanish(scene)
    assert len(scene.sim.deliveries) == 2 * len({attempt.event for attempt in scene.sim.deliveries})
    assert await scene.decisions() == [("settled_by_webhook", False)]


async def take_in_a_late_failure(scene: Scene) -> None:
    """The first confirm's failure is delivered after the second one's success."""
    effect = {"kind": "delay", "seconds": WINDOW_SECONDS + 3_600}
    late = {"name": "late", "match": {"type": "failed$"}, "effect": effect}
    scene.sim.set_webhook_faults(late)
    async with webhooks(scene):
        worker = scene.worker()
        first = await worker.intend(
            await scene.prepare(worker, card="pm_card_declineOnceThenSucceed"), CONFIRM
        )
        await worker.record(first, await worker.transmit(first))
        await scene.set_age(WINDOW_SECONDS)
        await worker.sender.send_first(await scene.charge(), CONFIRM, reason="retry")
        await scene.sim.deliver()
        await scene.set_age(2 * WINDOW_SECONDS)
    assert scene.sim.deliveries[-1].type.endswith("failed")
    assert (await scene.charge()).state is State.SUCCEEDED


async def go_by_the_identity_at_stripe(scene: Scene) -> None:
    """The webhook names a payment by its own id; whose it is stands in the PaymentIntent, since its birth."""
    async with webhooks(scene):
        await confirm_and_vanish(scene)
    [movement] = scene.sim.movements
    assert (await scene.charge()).payment_intent == movement.payment_intent
    assert (await scene.charge()).state is State.SUCCEEDED
