"""Traces that broke earlier drafts of the protocol, T1 to T6, each with its interleaving scripted.

A and B are two senders with fences of their own. Frozen means: the intent is committed, the request has not
left. T7 to T12 stand in `test_model_traces_of_lookups`, and the ends of T1, T1b, T5 and T10, where a later
run takes the charge over, in `test_takeover_traces`. What a trace needs beyond ledger, sender and settler
waits for its feature:

- T4 is about restores of the ledger: `tests.restore.test_t4`.
- T7's sweep stands in `tests.reconcile.test_sweep_traces`; here is the ledger's guard.
- T11 waits for the spend-cap proxy.
- T12's refunds wait for refunds; here are the keys.
"""

import asyncio
from dataclasses import replace

import pytest

from activities.carry import LATER_SECONDS_MAX, End
from activities.ledger.charges import _SQL, FirstSend, Resend, _resend_row
from activities.ledger.rows import columns
from tests.activities.scene import (
    AMOUNT_MINOR,
    CANCEL,
    CONFIRM,
    CREATE,
    Scene,
    Worker,
    create_body,
)
from workflows.domain.answer import Answer
from workflows.domain.charge import Intent
from workflows.domain.errors import InvariantViolation, StaleWrite
from workflows.domain.keys import IdempotencyKey, Operation
from workflows.domain.states import State
from workflows.domain.verdict import Proof, judge
from workflows.domain.window import WINDOW_SECONDS

RECOVERING_CARD = "pm_card_declineOnceThenSucceed_later"


async def test_t1_a_cancel_goes_by_the_status_of_its_payment_intent(scene: Scene) -> None:
    """c1 is declined by B's resend, then paid by A's frozen one: the cancel's 400 says paid, and no PI2."""
    a, b = scene.worker(), scene.worker()
    confirm = await a.intend(await scene.prepare(a, card=RECOVERING_CARD), CONFIRM)
    again = await b.intend_again(await b.claim_one())
    declined = await b.record(again, await b.transmit(again))
    assert declined.state is State.DECLINED
    await scene.set_age(WINDOW_SECONDS + 60)
    intent = await b.intend(declined, CANCEL)
    late = await a.transmit(confirm)
    refused = await b.transmit(intent)
    assert refused.http_status == 400
    paid = await b.record(intent, refused)
    assert paid.state is State.SUCCEEDED
    assert (await a.record(confirm, late)).state is State.SUCCEEDED
    body = create_body(paid, amount_minor=AMOUNT_MINOR + 100, version=2)
    for believed in (State.CANCELED, State.DECLINED):
        second = FirstSend(replace(paid, state=believed), CREATE, "/v1/payment_intents", body, reason="PI2")
        with pytest.raises(StaleWrite):
            await b.ledger.intend_first(second)
    await scene.audit()


async def test_t1_in_a_canceled_run_a_frozen_confirm_lands_before_the_cancel(scene: Scene) -> None:
    """A's confirm thaws between B's cancel intent and its request: counted as paid, not as canceled."""
    a, b = scene.worker(), scene.worker()
    confirm = await a.intend(await scene.prepare(a), CONFIRM)
    await scene.cancel()
    transmit = b.sender._transmit

    async def thaw_first(intent: Intent, leave_by: float) -> Answer:
        assert intent.operation is CANCEL
        await a.transmit(confirm)
        return await transmit(intent, leave_by)

    b.sender._transmit = thaw_first  # type: ignore[method-assign]
    assert await b.carrier.carry(await b.claim_one()) is End.SETTLED
    assert (await scene.charge()).state is State.SUCCEEDED
    assert scene.wire == ["create v1", "confirm v1", "cancel v1"]
    await scene.audit()


async def test_t1_settling_a_cancel_finds_the_late_payment(scene: Scene) -> None:
    """The same with the cancel's answer lost: the lookup of whoever settles it says paid."""
    a, b = scene.worker(), scene.worker()
    charge = await scene.prepare(a)
    confirm = await a.intend(charge, CONFIRM)
    await b.intend(await b.claim_one(), CANCEL)
    await a.transmit(confirm)
    assert list((await scene.work()).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.SUCCEEDED
    assert scene.wire == ["create v1", "confirm v1"]
    await scene.audit()


async def test_t1b_a_customer_who_pays_meanwhile_has_paid(scene: Scene) -> None:
    """The customer pays PI1 on session while the run is being canceled: the cancel finds it paid."""
    a = scene.worker()
    charge = await scene.prepare(a)
    await scene.cancel()
    on_session = await a.gateway.post(
        CONFIRM,
        account=a.sender._account,
        path=f"/v1/payment_intents/{charge.payment_intent}/confirm",
        parameters={"payment_method": charge.payment_method},
        key=IdempotencyKey("confirm_on_session"),
    )
    assert on_session.succeeded
    assert list((await scene.work()).values()) == [End.SETTLED]
    paid = await scene.charge()
    assert (paid.state, paid.payment_intent) == (State.SUCCEEDED, charge.payment_intent)
    assert [movement.payment_intent for movement in scene.sim.movements] == [charge.payment_intent]


async def test_t2_a_late_answer_does_not_replace_the_payment_intent(scene: Scene) -> None:
    """Create v1 runs twice, its key pruned in between: PI1 stays the charge's own, and v2 confirms PI1."""
    a, b = scene.worker(), scene.worker()
    await scene.plan()
    first = await a.intend(await a.claim_one(), CREATE)
    created = await a.transmit(first)
    again = await a.intend_again(await scene.charge())
    recorded = await a.record(first, created)
    assert recorded.payment_intent == created.payment_intent.id  # type: ignore[union-attr]
    await scene.set_age(WINDOW_SECONDS + 60)
    mine = await b.claim_one()
    confirm = await b.intend(mine, CONFIRM)
    late = await a.transmit(again)
    assert late.payment_intent is not None
    assert late.payment_intent.id != recorded.payment_intent
    after = await a.record(again, late)
    assert (after.state, after.payment_intent) == (State.CONFIRMING, recorded.payment_intent)
    await scene.set_age(2 * WINDOW_SECONDS + 120)
    assert list((await scene.work()).values()) == [End.SETTLED]
    paid = await scene.charge()
    assert (paid.state, paid.confirm_version) == (State.SUCCEEDED, 2)
    assert {request.path for request in scene.posts if "confirm" in request.path} == {confirm.path}
    assert paid.payment_intent == recorded.payment_intent
    assert len(scene.sim.movements) == 1
    await scene.audit()


async def test_t2_b_of_two_answers_only_the_first_is_written(scene: Scene) -> None:
    """Both answers are recorded one after the other: the second changes the journal and nothing else."""
    a = scene.worker()
    await scene.plan()
    first = await a.intend(await a.claim_one(), CREATE)
    again = await a.intend_again(await scene.charge())
    early = await a.transmit(first)
    await scene.set_age(WINDOW_SECONDS + 60)
    late = await a.transmit(again)
    kept = await a.record(again, late)
    after = await a.record(first, early)
    assert after.payment_intent == kept.payment_intent == late.payment_intent.id  # type: ignore[union-attr]
    assert [proof for _, _, proof in await scene.sends()] == [Proof.PROVED, Proof.PROVED]


async def second_payment_intent(scene: Scene, a: Worker, b: Worker) -> tuple[Intent, Answer]:
    """Bring a charge onto a paid PI2 after PI1 was canceled; return PI1's cancel and the answer to it."""
    charge = await scene.prepare(a)
    canceling = await b.intend(await b.claim_one(), CANCEL)
    answer = await b.transmit(canceling)
    canceled = await b.record(canceling, answer)
    assert canceled.state is State.CANCELED
    await scene.set_age(WINDOW_SECONDS + 60)
    sent = await b.sender.send_first(canceled, CREATE, reason="scripted")
    assert sent.charge.payment_intent not in {None, charge.payment_intent}
    paid = await b.sender.send_first(sent.charge, CONFIRM, reason="scripted")
    assert paid.charge.state is State.SUCCEEDED
    return canceling, answer


async def test_t3_a_stale_word_about_pi1_says_nothing_about_pi2(scene: Scene) -> None:
    """A GET "PI1 canceled" from before is refused once the row is on a paid PI2, and no PI3 can be made."""
    a, b = scene.worker(), scene.worker()
    canceling, answer = await second_payment_intent(scene, a, b)
    on_first = canceling.charge
    paid = await scene.charge()
    with pytest.raises(StaleWrite):
        await a.ledger.settle(
            on_first,
            State.CANCELED,
            payment_intent=on_first.payment_intent or "",
            latest_charge=None,
            reason="stale",
        )
    assert (await a.record(canceling, answer)).state is State.SUCCEEDED
    body = create_body(paid, amount_minor=AMOUNT_MINOR, version=3)
    stale = replace(paid, state=State.CANCELED)
    with pytest.raises(StaleWrite):
        await a.ledger.intend_first(FirstSend(stale, CREATE, "/v1/payment_intents", body, reason="PI3"))
    with pytest.raises(InvariantViolation):
        await a.ledger.intend_first(FirstSend(paid, CREATE, "/v1/payment_intents", body, reason="PI3"))
    assert await scene.charge() == paid
    await scene.audit()


async def test_t3_b_the_check_before_a_new_create_sees_every_payment_intent(scene: Scene) -> None:
    """Create v3 is unanswered while PI2 of the identity is paid: the list finds it, v3 is not repeated."""
    a, b = scene.worker(), scene.worker()
    await second_payment_intent(scene, a, b)
    # As a ledger would stand that had forgotten PI2's payment.
    await scene.owner.execute("ALTER TABLE charges DISABLE TRIGGER charges_check_step")
    try:
        await scene.owner.execute("UPDATE charges SET state = 'creating', payment_intent = NULL")
    finally:
        await scene.owner.execute("ALTER TABLE charges ENABLE TRIGGER charges_check_step")
    await scene.set_age(3 * WINDOW_SECONDS)
    sent = len(scene.posts)
    assert list((await scene.work()).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.SUCCEEDED
    assert len(scene.posts) == sent
    await scene.audit()


async def test_t5_only_the_current_version_is_adopted(scene: Scene) -> None:
    """v1 books late, after v2 was made with a new amount: v1's PaymentIntent is never the charge's own."""
    a, b = scene.worker(), scene.worker()
    await scene.plan()
    old = await a.intend(await a.claim_one(), CREATE)
    await scene.set_age(WINDOW_SECONDS)
    charge = await b.claim_one()
    # What a takeover with a corrected amount leaves behind.
    new_amount = AMOUNT_MINOR + 100
    await scene.owner.execute("UPDATE charges SET amount_minor = $1", new_amount)
    corrected = replace(charge, amount_minor=new_amount)
    new = FirstSend(
        corrected,
        CREATE,
        "/v1/payment_intents",
        create_body(charge, amount_minor=new_amount, version=2),
        reason="takeover",
    )
    await b.ledger.intend_first(new)
    late = await a.transmit(old)
    assert late.payment_intent is not None
    assert (await a.record(old, late)).payment_intent is None
    assert list((await scene.work()).values()) == [End.SETTLED]
    paid = await scene.charge()
    assert paid.state is State.SUCCEEDED
    assert paid.payment_intent != late.payment_intent.id
    assert [movement.amount for movement in scene.sim.movements] == [new_amount]
    await scene.audit()


async def test_t5_b_past_the_window_leftovers_stop_a_new_create(scene: Scene) -> None:
    """v1's late PaymentIntent is still open when v2's window has passed: an alarm, and no v3 beside it."""
    a, b = scene.worker(), scene.worker()
    await scene.plan()
    old = await a.intend(await a.claim_one(), CREATE)
    await scene.set_age(WINDOW_SECONDS)
    charge = await b.claim_one()
    await b.ledger.intend_first(
        FirstSend(
            charge,
            CREATE,
            "/v1/payment_intents",
            create_body(charge, amount_minor=AMOUNT_MINOR, version=2),
            reason="rekeyed",
        )
    )
    await a.transmit(old)
    await scene.set_age(2 * WINDOW_SECONDS)
    assert list((await scene.work()).values()) == [End.DEFERRED]
    assert scene.wire == ["create v1"]
    assert await scene.decisions() == [("waiting", True)]
    assert (await scene.charge()).create_version == 2


async def test_t6_a_refusal_of_a_resend_says_nothing_about_the_first_send(scene: Scene) -> None:
    """A intends c1 and freezes, B resends and gets 400: the charge stays in flight, and A's send pays it."""
    a, b = scene.worker(), scene.worker()
    confirm = await a.intend(await scene.prepare(a), CONFIRM)
    mine = await b.claim_one()
    scene.fault("error", status=400, operation=CONFIRM)
    step = await b.settler.settle(mine)
    assert step.sent is not None
    assert step.sent.answer.http_status == 400
    assert step.sent.verdict.proof is Proof.UNKNOWN
    assert step.charge.state is State.CONFIRMING
    scene.clear_faults()
    paid = await a.record(confirm, await a.transmit(confirm))
    assert paid.state is State.SUCCEEDED
    await scene.audit()


async def test_t6_b_the_first_send_is_not_refused_once_it_has_company(scene: Scene) -> None:
    """B has committed a resend before A's 400 is recorded: A's is not the only attempt, so not refused."""
    a, b = scene.worker(), scene.worker()
    confirm = await a.intend(await scene.prepare(a), CONFIRM)
    again = await b.intend_again(await b.claim_one())
    scene.fault("error", status=400, operation=CONFIRM)
    refused = await a.transmit(confirm)
    assert judge(CONFIRM, refused, first_send=confirm.first_send).state is State.REFUSED
    assert (await a.record(confirm, refused)).state is State.CONFIRMING
    scene.clear_faults()
    assert (await b.record(again, await b.transmit(again))).state is State.SUCCEEDED
    await scene.audit()


@pytest.mark.parametrize("operation", [CREATE, CONFIRM], ids=["create", "confirm"])
async def test_t6_c_a_later_version_is_never_a_first_send(scene: Scene, operation: Operation) -> None:
    """400 to version 2 leaves the charge in flight: version 1 may still be under way."""
    a, b = scene.worker(), scene.worker()
    if operation is CONFIRM:
        await a.intend(await scene.prepare(a), CONFIRM)
    else:
        await scene.plan()
        await a.intend(await a.claim_one(), CREATE)
    await scene.set_age(WINDOW_SECONDS)
    scene.fault("error", status=400, operation=operation)
    step = await b.settler.settle(await b.claim_one())
    assert step.sent is not None
    assert step.sent.verdict.proof is Proof.UNKNOWN
    assert step.charge.version_of(operation) == 2
    assert step.charge.is_in_flight


async def test_t6_d_a_resend_that_commits_at_the_same_moment_counts(scene: Scene) -> None:
    """B's resend commits while the record of A's 400 waits for the row: A's is not the only attempt."""
    a, b = scene.worker(), scene.worker()
    confirm = await a.intend(await scene.prepare(a), CONFIRM)
    mine = await b.claim_one()
    scene.fault("error", status=400, operation=CONFIRM)
    refused = await a.transmit(confirm)
    await scene.set_age(1)
    async with scene.pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        frozen, _ = await b.ledger.frozen_key(confirm.key)
        rows = columns([_resend_row(Resend(mine, frozen, reason="scripted"))])
        again = await connection.fetch(_SQL["intend_again"], *rows, WINDOW_SECONDS)
        assert len(again) == 1
        recording = asyncio.create_task(a.record(confirm, refused))
        await scene.wait_for_a_blocked_statement()
        await transaction.commit()
    assert (await recording).state is State.CONFIRMING


async def test_t10_nothing_is_canceled_while_a_confirm_of_it_may_still_pay(scene: Scene) -> None:
    """Cancels that never reach Stripe leave A's open confirm open: in flight until Stripe's word (I12)."""
    a = scene.worker()
    confirm = await a.intend(await scene.prepare(a), CONFIRM)
    await scene.cancel()
    scene.fault("drop", operation=CANCEL)
    for number in range(3):
        assert list((await scene.work()).values()) == [End.DEFERRED]
        assert (await scene.charge()).state is State.CANCELING
        await scene.set_age((number + 1) * LATER_SECONDS_MAX)
    await a.transmit(confirm)
    scene.clear_faults()
    assert list((await scene.work()).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.SUCCEEDED
    await scene.audit()


async def test_t10_b_a_confirm_that_comes_after_the_cancel_is_answered_by_it(scene: Scene) -> None:
    """The cancel was executed first: A's late confirm meets a canceled PaymentIntent and does nothing."""
    a = scene.worker()
    confirm = await a.intend(await scene.prepare(a), CONFIRM)
    await scene.cancel()
    assert list((await scene.work()).values()) == [End.SETTLED]
    late = await a.transmit(confirm)
    assert late.http_status == 400
    assert (await a.record(confirm, late)).state is State.CANCELED
    assert scene.sim.movements == []
    assert await scene.alarms() == 0
    await scene.audit()
