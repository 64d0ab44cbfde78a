"""Incidents of cases that came in through webhooks, each with its scenario."""

import json

import asyncpg
import pytest

from activities.ledger.charges import ChargeLedger
from tests.activities.scene import ACCOUNT, CONFIRM, Scene
from tests.web.mailroom import Mailroom
from tests.web.postbox import SECRET, open_postbox, register, settings_for
from workflows.domain.charge import Charge
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS

TWO_DAYS_SECONDS = 2 * 86_400.0


async def execute_and_lose(scene: Scene) -> Charge:
    """Leave one charge in `confirming`, paid at Stripe, its answer lost."""
    worker = scene.worker()
    intent = await worker.intend(await scene.prepare(worker), CONFIRM)
    await worker.transmit(intent)
    return intent.charge


async def test_i12_one_event_delivered_six_times_is_applied_once(scene: Scene, mail: Mailroom) -> None:
    """I12: three at first, one after a restart, one after two days, one by a second endpoint: once."""
    await execute_and_lose(scene)
    [paid] = [body for body in mail.bodies() if json.loads(body)["type"] == "payment_intent.succeeded"]
    settings = settings_for(scene.database, (ACCOUNT.id, SECRET), (ACCOUNT.id, "whsec_second"))
    async with open_postbox(settings) as one, open_postbox(settings) as two:
        statuses = [await box.post(paid) for box in (one, two, one)]
        await mail.work()
    async with open_postbox(settings) as again:
        statuses.append(await again.post(paid))
        await mail.work()
        await scene.set_age(TWO_DAYS_SECONDS)
        statuses += [await again.post(paid), await again.post(paid, secret="whsec_second")]
        await mail.work()
    assert statuses == [200] * 6
    assert await mail.states() == {"done": 1}
    assert [one for one in await scene.decisions() if one[0] == "settled_by_webhook"] == [
        ("settled_by_webhook", False)
    ]
    assert (await scene.charge()).state is State.SUCCEEDED
    await scene.audit()


async def test_i13_an_old_failure_after_the_success_changes_nothing(scene: Scene, mail: Mailroom) -> None:
    """I13: v1 declined, v2 succeeded, and the failure of v1 is delivered an hour later by Stripe itself."""
    async with open_postbox(settings_for(scene.database)) as box:
        register(scene, box)
        late = {
            "name": "late",
            "match": {"type": "failed$"},
            "effect": {"kind": "delay", "seconds": WINDOW_SECONDS + 3_600},
        }
        scene.sim.set_webhook_faults(late)
        worker = scene.worker()
        first = await worker.intend(
            await scene.prepare(worker, card="pm_card_declineOnceThenSucceed"), CONFIRM
        )
        await worker.record(first, await worker.transmit(first))
        await scene.set_age(WINDOW_SECONDS)
        await worker.sender.send_first(await scene.charge(), CONFIRM, reason="retry")
        assert (await scene.charge()).state is State.SUCCEEDED
        await scene.sim.deliver()
        await mail.work()
        await scene.set_age(WINDOW_SECONDS + 3_601)
        await scene.sim.deliver()
        assert {attempt.status for attempt in scene.sim.deliveries} == {200}
        await mail.work()
    assert (await scene.charge()).state is State.SUCCEEDED
    kept = await scene.pool.fetch("SELECT type, state FROM inbox_events ORDER BY event_no")
    assert [row["type"] for row in kept][-1].endswith("failed")
    assert {row["state"] for row in kept} == {"done", "ignored"}
    await scene.audit()


async def test_i27_a_serialization_failure_repeats_the_write_and_nothing_else(
    scene: Scene, mail: Mailroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I27: 40001 at the commit after the look, three times: the write is made again, the charge is not."""
    charge = await execute_and_lose(scene)
    settle, failures = ChargeLedger.settle, 3

    async def fail_first(self: ChargeLedger, *arguments: object, **options: object) -> Charge:
        nonlocal failures
        if failures:
            failures -= 1
            raise asyncpg.SerializationError("could not serialize access")
        return await settle(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ChargeLedger, "settle", fail_first)
    await mail.deliver(*mail.bodies())
    for number in range(1, 5):
        assert await mail.work() == 1
        await scene.set_age(number * 60)
    assert (await scene.charge(charge.charge_id)).state is State.SUCCEEDED
    assert scene.wire == ["create v1", "confirm v1"]
    assert len(scene.sim.movements) == 1
    assert await mail.states() == {"done": 2, "ignored": 1}
    await scene.audit()
