"""The traces whose end is a takeover: a later run, a corrected amount, and a send that thaws in between.

A is a sender of the first run with a fence of its own, B one of the run that takes over. Frozen means: the
intent is committed, the request has not left.
"""

import pytest

from activities.carry import End
from tests.activities.scene import AMOUNT_MINOR, CANCEL, CONFIRM, CREATE, RUN_ID, Scene, Worker, seconds
from tests.activities.second_run import LATER, again, bill_again, close, counts, kept
from workflows.domain.answer import Answer
from workflows.domain.charge import Charge, Intent
from workflows.domain.keys import IdempotencyKey
from workflows.domain.skips import SkipReason
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS

RECOVERING_CARD = "pm_card_declineOnceThenSucceed_later"
CORRECTED_MINOR = AMOUNT_MINOR + 100


async def declined_with_a_frozen_confirm(scene: Scene) -> tuple[Worker, Intent, Charge]:
    """A intends c1 and freezes, B resends c1 and gets 402: the run closes over a decline."""
    a, b = scene.worker(), scene.worker()
    confirm = await a.intend(await scene.prepare(a, card=RECOVERING_CARD), CONFIRM)
    again_sent = await b.intend_again(await b.claim_one())
    declined = await b.record(again_sent, await b.transmit(again_sent))
    assert declined.state is State.DECLINED
    await close(scene)
    return a, confirm, declined


async def pay_on_session(worker: Worker, charge: Charge) -> None:
    """Let the customer pay the charge's PaymentIntent on the merchant's page."""
    answer = await worker.gateway.post(
        CONFIRM,
        account=worker.sender._account,
        path=f"/v1/payment_intents/{charge.payment_intent}/confirm",
        parameters={"payment_method": charge.payment_method},
        key=IdempotencyKey("confirm_on_session"),
    )
    assert answer.succeeded


def thaw_before(worker: Worker, operation: object, frozen: Intent, thawing: Worker) -> None:
    """Let a frozen intent's request land between the next intent of an operation and its request."""
    transmit = worker.sender._transmit

    async def thaw_first(intent: Intent, leave_by: float) -> Answer:
        if intent.operation is operation:
            await thawing.transmit(frozen)
        return await transmit(intent, leave_by)

    worker.sender._transmit = thaw_first  # type: ignore[method-assign]


async def paid_as_it_was(scene: Scene, payment_intent: str | None) -> None:
    """Assert that the charge was paid once, by this PaymentIntent, and that the row says of how much."""
    paid = await scene.charge()
    assert (paid.state, paid.payment_intent) == (State.SUCCEEDED, payment_intent)
    assert paid.amount_minor == AMOUNT_MINOR
    assert [movement.payment_intent for movement in scene.sim.movements] == [payment_intent]
    assert await counts(scene, RUN_ID) == {"taken_over": 1}
    assert await counts(scene, LATER) == {"succeeded": 1}
    await close(scene, LATER)


async def test_t1_a_takeovers_cancel_goes_by_the_status_of_its_payment_intent(scene: Scene) -> None:
    """A thaws between the takeover's cancel intent and its request: PI1 is paid, the cancel's 400 says so."""
    a, confirm, declined = await declined_with_a_frozen_confirm(scene)
    await scene.set_age(WINDOW_SECONDS + 60)
    await bill_again(scene, again(amount_minor=CORRECTED_MINOR))
    b = scene.worker(run_id=LATER)
    thaw_before(b, CANCEL, confirm, a)
    assert list((await b.work()).values()) == [End.SETTLED]
    assert scene.wire == ["create v1", "confirm v1", "confirm v1", "cancel v1"]
    await paid_as_it_was(scene, declined.payment_intent)
    await scene.audit()


async def test_t1_settling_a_takeovers_cancel_finds_the_late_payment(scene: Scene) -> None:
    """The same with the cancel's answer lost: whoever settles it finds PI1 paid, and makes no PI2."""
    a, confirm, declined = await declined_with_a_frozen_confirm(scene)
    await scene.set_age(WINDOW_SECONDS + 60)
    await bill_again(scene, again(amount_minor=CORRECTED_MINOR))
    b = scene.worker(run_id=LATER)
    await b.intend(await b.claim_one(), CANCEL)
    late = await a.transmit(confirm)
    assert (await a.record(confirm, late)).state is State.SUCCEEDED
    assert await scene.work(LATER) == {}
    assert "create v2" not in scene.wire
    await paid_as_it_was(scene, declined.payment_intent)
    await scene.audit()


async def test_t1_an_unchanged_takeover_meets_the_late_payment_with_its_lookup(scene: Scene) -> None:
    """Nothing was corrected, so it goes on with PI1: its lookup finds A's payment, and nothing is sent."""
    a, confirm, declined = await declined_with_a_frozen_confirm(scene)
    await scene.set_age(WINDOW_SECONDS + 60)
    await bill_again(scene, again())
    await a.transmit(confirm)
    sent = len(scene.posts)
    assert list((await scene.work(LATER)).values()) == [End.SETTLED]
    assert len(scene.posts) == sent
    await paid_as_it_was(scene, declined.payment_intent)
    await scene.audit()


async def test_t1_two_confirms_of_one_payment_intent_pay_once(scene: Scene) -> None:
    """A thaws between the takeover's c2 and its request: both are for PI1, which is paid once."""
    a, confirm, declined = await declined_with_a_frozen_confirm(scene)
    await scene.set_age(WINDOW_SECONDS + 60)
    await bill_again(scene, again())
    b = scene.worker(run_id=LATER)
    thaw_before(b, CONFIRM, confirm, a)
    assert list((await b.work()).values()) == [End.SETTLED]
    assert scene.wire[-2:] == ["confirm v1", "confirm v2"]
    await paid_as_it_was(scene, declined.payment_intent)
    await scene.audit()


@pytest.mark.parametrize("corrected", [False, True], ids=["unchanged", "corrected"])
async def test_t1b_a_customer_who_pays_during_the_takeover_has_paid(scene: Scene, corrected: bool) -> None:  # noqa: FBT001 - parametrized
    """The customer pays PI1 on session while the takeover waits: it is found paid, and no PI2 is made."""
    await scene.plan([RECOVERING_CARD])
    assert list((await scene.work()).values()) == [End.SETTLED]
    declined = await scene.charge()
    await close(scene)
    await bill_again(scene, again(amount_minor=CORRECTED_MINOR if corrected else AMOUNT_MINOR))
    if not corrected:
        assert list((await scene.work(LATER)).values()) == [End.DEFERRED]
    await pay_on_session(scene.worker(), declined)
    await scene.set_age(WINDOW_SECONDS)
    assert list((await scene.work(LATER)).values()) == [End.SETTLED]
    await paid_as_it_was(scene, declined.payment_intent)


async def unanswered_create_taken_over(scene: Scene) -> tuple[Worker, Intent]:
    """Create v1 is never answered, its run is canceled, and a later one takes it over with a new amount."""
    a = scene.worker()
    await scene.plan()
    old = await a.intend(await a.claim_one(), CREATE)
    await scene.set_age(WINDOW_SECONDS)
    await scene.cancel()
    assert list((await scene.work()).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.CANCELED
    await close(scene)
    await bill_again(scene, again(amount_minor=CORRECTED_MINOR))
    return a, old


async def paid_as_corrected(scene: Scene, leftover: str) -> None:
    """Assert that the corrected amount was paid once, and not by the leftover."""
    paid = await scene.charge()
    assert (paid.state, paid.amount_minor) == (State.SUCCEEDED, CORRECTED_MINOR)
    assert paid.payment_intent != leftover
    assert [movement.amount for movement in scene.sim.movements] == [CORRECTED_MINOR]
    assert await counts(scene, RUN_ID) == {"taken_over": 1}
    await close(scene, LATER)
    await scene.audit()


async def test_t5_v1_books_late_after_the_takeovers_create(scene: Scene) -> None:
    """v2 is intended, then v1 lands, then v2: identity alone adopts nothing, the corrected amount is paid."""
    a, old = await unanswered_create_taken_over(scene)
    b = scene.worker(run_id=LATER)
    new = await b.intend(await b.claim_one(), CREATE)
    late = await a.transmit(old)
    assert late.payment_intent is not None
    assert (await a.record(old, late)).payment_intent is None
    await b.transmit(new)
    assert list((await scene.work(LATER)).values()) == [End.SETTLED]
    await paid_as_corrected(scene, late.payment_intent.id)


async def test_t5_v1_books_late_before_the_takeovers_create(scene: Scene) -> None:
    """v1 lands before the takeover lists: it is canceled first, and only then comes v2."""
    a, old = await unanswered_create_taken_over(scene)
    late = await a.transmit(old)
    assert late.payment_intent is not None
    assert list((await scene.work(LATER)).values()) == [End.SETTLED]
    assert scene.wire == ["create v1", "cancel v1", "create v2", "confirm v1"]
    await paid_as_corrected(scene, late.payment_intent.id)
    assert await scene.open_at_stripe() == []


async def test_t10_what_may_still_be_paid_is_not_taken_over(scene: Scene) -> None:
    """A's c1 has no answer and PI1 is open: declined or not, no other run takes it inside the window."""
    a, confirm, declined = await declined_with_a_frozen_confirm(scene)
    await scene.set_age(seconds("1:00"))
    run = await bill_again(scene, again(amount_minor=CORRECTED_MINOR))
    assert await kept(scene) == {"cus_1": SkipReason.UNDETERMINED}
    assert await counts(scene, LATER) == {"skipped_rows": 1}
    assert run.slices == 0
    assert (await a.record(confirm, await a.transmit(confirm))).state is State.DECLINED
    await close(scene, LATER)
    third = f"{RUN_ID}/r3"
    await bill_again(scene, again(), run_id=third)
    assert (await scene.charge()).run_id == third
    await scene.set_age(WINDOW_SECONDS)
    assert list((await scene.work(third)).values()) == [End.SETTLED]
    paid = await scene.charge()
    assert (paid.state, paid.payment_intent) == (State.SUCCEEDED, declined.payment_intent)
    await scene.audit()


async def test_t10_b_the_truth_wins_over_a_takeover(scene: Scene) -> None:
    """Past the window A's c1 pays PI1 while the takeover waits for nothing: the row says so at once."""
    a, confirm, declined = await declined_with_a_frozen_confirm(scene)
    await scene.set_age(WINDOW_SECONDS + 60)
    await bill_again(scene, again(amount_minor=CORRECTED_MINOR))
    late = await a.transmit(confirm)
    assert (await a.record(confirm, late)).state is State.SUCCEEDED
    assert await scene.work(LATER) == {}
    await paid_as_it_was(scene, declined.payment_intent)
    await scene.audit()
