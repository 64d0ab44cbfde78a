"""Incident I16: the customer has to act and is not there; nothing is tried again, paying later pays once."""

import json

import pytest

from tests.activities.scene import ACCOUNT, CONFIRM, CREATE, GOOD_CARD, Scene
from workflows.domain.keys import IdempotencyKey
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS

AUTHENTICATING_CARD = "pm_card_authenticationRequired_always"


async def turned_away(scene: Scene) -> None:
    """Answer 402 `authentication_required`, as a bank does where its customer is not there."""
    await scene.plan([AUTHENTICATING_CARD])
    await scene.work()


async def asked_for(scene: Scene) -> None:
    """Answer 200 with `requires_action`, as where the confirm went out on session."""
    await scene.plan([AUTHENTICATING_CARD])
    worker = scene.worker()
    prepared = (await worker.sender.send_first(await worker.claim_one(), CREATE, reason="planned")).charge
    intent = await worker.intend(prepared, CONFIRM)
    parameters = json.loads(intent.parameters)
    answer = await worker.gateway.post(
        CONFIRM,
        account=ACCOUNT,
        path=intent.path,
        parameters={name: value for name, value in parameters.items() if name != "off_session"},
        key=intent.key,
    )
    assert answer.http_status == 200
    await worker.record(intent, answer)


async def pay_on_session(scene: Scene) -> None:
    """Let the customer come back and pay that very PaymentIntent with another card."""
    charge = await scene.charge()
    method = f"{GOOD_CARD}_of_{charge.customer}"
    scene.sim.seed(charge.customer, method)
    answer = await scene.worker().gateway.post(
        CONFIRM,
        account=ACCOUNT,
        path=f"/v1/payment_intents/{charge.payment_intent}/confirm",
        parameters={"payment_method": method, "return_url": "https://shop.example/return"},
        key=IdempotencyKey("confirm_by_the_customer"),
    )
    assert answer.succeeded, answer


@pytest.mark.parametrize("arrive", [turned_away, asked_for], ids=["402", "requires_action"])
async def test_i16_needs_the_customer_who_is_not_there(scene: Scene, arrive: object) -> None:
    """One PaymentIntent, one hand-off, no retry for days; the customer who returns pays it once."""
    assert callable(arrive)
    await arrive(scene)
    charge = await scene.charge()
    assert (charge.state, charge.create_version, charge.confirm_version) == (State.NEEDS_CUSTOMER, 1, 1)
    assert await scene.decisions() == [("handed_to_customer", False)]
    handed = await scene.pool.fetchval("SELECT evidence ->> 'payment_intent' FROM decisions")
    assert handed == charge.payment_intent
    sent = scene.wire
    assert sent == ["create v1", "confirm v1"]
    for age_seconds in (3_600, WINDOW_SECONDS, 3 * WINDOW_SECONDS):
        await scene.set_age(age_seconds)
        assert await scene.work() == {}
    assert scene.wire == sent
    await scene.audit()

    await pay_on_session(scene)
    await scene.set_age(4 * WINDOW_SECONDS)
    assert await scene.work() == {}
    assert len(scene.sim.movements) == 1
    assert [decision for decision, _ in await scene.decisions()] == ["handed_to_customer"]
