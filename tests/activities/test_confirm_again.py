"""A decline is retried on the same PaymentIntent, once its replay is over and Stripe has been asked."""

from dataclasses import replace

import pytest

from activities.carry import End
from activities.reopen import Reopener
from activities.settle import Step
from tests.activities.scene import DECLINING_CARD, GOOD_CARD, RUN_ID, Scene, Worker, seconds
from tests.activities.second_run import close
from workflows.domain.answer import Lookup, PaymentIntent
from workflows.domain.charge import Charge
from workflows.domain.errors import InvariantViolation, StaleWrite
from workflows.domain.keys import IdempotencyKey, Operation
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS

REPLACED_CARD = f"{GOOD_CARD}_replaced"
RECOVERING_CARD = "pm_card_declineOnceThenSucceed_later"


async def decline(scene: Scene, card: str = DECLINING_CARD) -> tuple[Worker, Charge]:
    """Let a run's only charge be declined, and return it with whoever has its fence."""
    await scene.plan([card])
    worker = scene.worker()
    charge = await worker.claim_one()
    assert await worker.carrier.carry(charge) is End.SETTLED
    declined = await scene.charge()
    assert declined.state is State.DECLINED
    scene.sim.seed("cus_1", REPLACED_CARD)
    return worker, declined


async def retry(worker: Worker, charge: Charge, payment_method: str = REPLACED_CARD) -> Step:
    """Confirm it again."""
    reopener = Reopener(ledger=worker.ledger, sender=worker.sender, settler=worker.settler)
    return await reopener.confirm_again(charge, payment_method=payment_method, reason="day 3 of the policy")


async def test_i07_a_retry_inside_the_window_would_only_repeat_the_decline(scene: Scene) -> None:
    """I07: funded after six hours, nothing is sent at 06:30; past the window version 2 charges once."""
    worker, declined = await decline(scene, RECOVERING_CARD)
    for clock_time in ("6:30", "23:59:59"):
        await scene.set_age(seconds(clock_time))
        step = await retry(worker, declined, declined.payment_method or "")
        assert step.waiting
        assert step.wait_seconds == WINDOW_SECONDS - seconds(clock_time)
        assert scene.lookups == 0
    await scene.set_age(WINDOW_SECONDS)
    step = await retry(worker, declined, declined.payment_method or "")
    assert step.charge.state is State.SUCCEEDED
    assert scene.wire == ["create v1", "confirm v1", "confirm v2"]
    assert len(scene.sim.movements) == 1
    await scene.audit()


async def test_a_retry_pays_by_the_card_that_the_customer_has_now(scene: Scene) -> None:
    """Version 2 on the same PaymentIntent, the new card frozen in its body, the evidence in the decision."""
    worker, declined = await decline(scene)
    await scene.set_age(seconds("72:00"))
    step = await retry(worker, declined)
    assert (step.charge.state, step.charge.payment_intent) == (State.SUCCEEDED, declined.payment_intent)
    key = await scene.pool.fetchrow("SELECT parameters, reason FROM keys WHERE version = 2")
    assert key is not None
    assert REPLACED_CARD in key["parameters"]
    assert key["reason"].startswith("day 3 of the policy; the window has passed")
    [row] = await scene.pool.fetch("SELECT decision, evidence FROM decisions")
    assert row["decision"] == "retried"
    assert row["evidence"]["age_seconds"] == seconds("72:00")
    assert len(row["evidence"]["requests"]) == 1
    await scene.audit()


async def test_a_retry_without_an_answer_goes_on_with_its_own_card(scene: Scene) -> None:
    """What is opened for it past the window pays by the retry's card, and not by the one that was planned."""
    worker, declined = await decline(scene)
    await scene.set_age(WINDOW_SECONDS)
    await worker.intend(replace(declined, payment_method=REPLACED_CARD), Operation.CONFIRM)
    await scene.set_age(2 * WINDOW_SECONDS)
    step = await worker.settler.settle(await scene.charge())
    assert (step.charge.state, step.charge.confirm_version) == (State.SUCCEEDED, 3)
    assert REPLACED_CARD in await scene.pool.fetchval("SELECT parameters FROM keys WHERE version = 3")
    await scene.audit()


async def test_a_retry_may_be_declined_again(scene: Scene) -> None:
    """The next one waits for the window of the newest key, and is version 3."""
    worker, declined = await decline(scene)
    await scene.set_age(WINDOW_SECONDS)
    again = (await retry(worker, declined, declined.payment_method or "")).charge
    assert (again.state, again.confirm_version) == (State.DECLINED, 2)
    assert (await retry(worker, again)).wait_seconds == WINDOW_SECONDS
    await scene.set_age(2 * WINDOW_SECONDS)
    assert (await retry(worker, again)).charge.state is State.SUCCEEDED
    await scene.audit()


async def test_what_the_lookup_settles_is_recorded_and_not_retried(scene: Scene) -> None:
    """The customer has paid on session meanwhile: the charge is paid, and nothing is sent."""
    worker, declined = await decline(scene)
    await worker.gateway.post(
        Operation.CONFIRM,
        account=worker.sender._account,
        path=f"/v1/payment_intents/{declined.payment_intent}/confirm",
        parameters={"payment_method": REPLACED_CARD},
        key=IdempotencyKey("confirm_on_session"),
    )
    await scene.set_age(WINDOW_SECONDS)
    sent = len(scene.posts)
    assert (await retry(worker, declined)).charge.state is State.SUCCEEDED
    assert len(scene.posts) == sent


async def test_no_retry_runs_against_a_customer_who_is_paying(scene: Scene) -> None:
    """`requires_action` on a declined charge is a customer at work: looked at later, and not confirmed."""
    worker, declined = await decline(scene)
    await scene.set_age(WINDOW_SECONDS)
    paying = PaymentIntent(
        declined.payment_intent or "", "requires_action", declined.amount_minor, declined.currency, 1,
        customer=declined.customer,
    )  # fmt: skip

    async def look(_charge: Charge) -> Lookup:
        now = (await scene.now()).timestamp()
        return Lookup((paying,), complete=True, started_epoch_seconds=now, skew_seconds=0.0)

    worker.settler.lookups.retrieve = look  # type: ignore[method-assign, assignment]
    sent = len(scene.posts)
    step = await retry(worker, declined)
    assert (step.waiting, step.customer_pays) == (True, True)
    assert step.charge.state is State.DECLINED
    assert len(scene.posts) == sent


async def test_without_an_answer_to_the_lookup_nothing_is_sent(scene: Scene) -> None:
    """A lookup that failed is no evidence: the retry waits."""
    worker, declined = await decline(scene)
    await scene.set_age(WINDOW_SECONDS)
    scene.sim.set_faults(
        {"name": "mute", "match": {"method": "GET"}, "effect": {"kind": "error", "status": 500}}
    )
    assert (await retry(worker, declined)).waiting
    assert "confirm v2" not in scene.wire


@pytest.mark.parametrize("decision", ["hold", "cancel", "close"])
async def test_a_retry_obeys_its_runs_gate(scene: Scene, decision: str) -> None:
    """In a run that is held, being canceled or closed no next version is committed."""
    worker, declined = await decline(scene)
    await scene.set_age(WINDOW_SECONDS)
    match decision:
        case "hold":
            await scene.pause()
        case "cancel":
            await scene.cancel()
        case _:
            await close(scene)
    with pytest.raises(StaleWrite):
        await retry(worker, declined)
    assert "confirm v2" not in scene.wire


async def test_a_run_that_waits_for_retries_may_retry(scene: Scene) -> None:
    """Its charging is over, and its retries are what it is still open for."""
    worker, declined = await decline(scene)
    await scene.set_age(WINDOW_SECONDS)
    await scene.pool.execute(
        "UPDATE billing_runs SET phase = 'retrying', charging_closed_at = ledger_now() WHERE run_id = $1",
        RUN_ID,
    )
    assert (await retry(worker, declined)).charge.state is State.SUCCEEDED


async def test_only_a_decline_is_retried(scene: Scene) -> None:
    """Whatever else a charge is, it is not for this to confirm."""
    worker, declined = await decline(scene)
    await scene.set_age(WINDOW_SECONDS)
    paid = (await retry(worker, declined)).charge
    with pytest.raises(InvariantViolation):
        await retry(worker, paid)
