import asyncio
from typing import Any

import pytest

from activities.crash_points import RefundPoint, install
from activities.inbox import InboxWorker
from activities.verify import verify_run
from tests.activities.dashboard import post
from tests.activities.scene import AMOUNT_MINOR, RUN_ID, Scene, fault
from tests.reconcile.orphans import Killed
from tests.reconcile.test_reconcile import pay_again
from tests.refunds.desk import Desk
from tests.web.mailroom import Mailroom
from workflows.domain.errors import InvalidInput, RefusedToStart
from workflows.domain.refund import RequestState
from workflows.domain.states import State
from workflows.domain.window import SAFETY_MARGIN_SECONDS, WINDOW_SECONDS

MADE, REFUSED, REVIEW = RequestState.MADE, RequestState.REFUSED, RequestState.REVIEW
WAITING_FOR_LOCKS = """
SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
"""
REFUNDS = {"method": "POST", "path": "^/v1/refunds$"}


@pytest.fixture
def desk(mail: Mailroom) -> Desk:
    """Whoever gives money back."""
    return Desk(mail)


def refund_posts(scene: Scene) -> list[str]:
    """Return the keys of the refunds on the wire."""
    return [request.key or "" for request in scene.posts if request.path == "/v1/refunds"]


async def test_a_refund_stands_beside_a_charge_that_stays_paid(desk: Desk) -> None:
    """All that was paid goes back once; the charge is succeeded as before (I8), and the books agree."""
    charge_id = await desk.charge()
    request = await desk.ask(charge_id)
    step = await desk.carry(request)
    assert (step.state, desk.refunded()) == (MADE, [AMOUNT_MINOR])
    assert [row[1:] for row in await desk.rows()] == [(AMOUNT_MINOR, "succeeded")]
    assert (await desk.scene.charge(charge_id)).state is State.SUCCEEDED
    report = await verify_run(desk.scene.pool, desk.scene.worker().gateway, RUN_ID)
    assert report.clean, report.as_text()
    await desk.scene.audit()


async def test_t12_two_partial_refunds_are_two_requests_with_a_key_each(desk: Desk) -> None:
    """The second part is neither blocked by the first one's key nor a repetition of it."""
    charge_id = await desk.charge()
    for _ in range(2):
        assert (await desk.carry(await desk.ask(charge_id, 1_000))).state == MADE
    assert desk.refunded() == [1_000, 1_000]
    assert len(set(refund_posts(desk.scene))) == 2
    await desk.scene.audit()


async def test_a_request_that_has_ended_sends_nothing_more(desk: Desk) -> None:
    """A second workflow for the same request finds its end, and no second refund is asked for."""
    request = await desk.ask(await desk.charge(), 1_000)
    first = await desk.carry(request)
    assert await desk.carry(request) == first
    assert len(refund_posts(desk.scene)) == 1


@pytest.mark.parametrize("point", list(RefundPoint))
async def test_a_process_killed_anywhere_refunds_once(desk: Desk, point: RefundPoint) -> None:
    """Whoever carries the request on after a kill finds out what it did, or sends the same key."""
    request = await desk.ask(await desk.charge(), 1_000)
    if point is RefundPoint.AFTER_LOOKUP:
        desk.scene.sim.set_faults(fault("drop", place="after", match=REFUNDS))
        await desk.step(request)
        desk.scene.clear_faults()

    def die(reached: object) -> None:
        if reached is point:
            raise Killed

    install(die)
    try:
        with pytest.raises(Killed):
            await desk.step(request)
    finally:
        install(lambda _point: None)
    assert (await desk.carry(request)).state == MADE
    assert desk.refunded() == [1_000]
    assert len(await desk.rows()) == 1
    assert len(set(refund_posts(desk.scene))) <= 1
    await desk.scene.audit()


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("kind", ["drop", "reset", "error", "garbage"])
async def test_an_answer_that_is_lost_is_found_out_about(desk: Desk, kind: str, place: str) -> None:
    """Whether the refund was made or not, one refund is what comes of it."""
    request = await desk.ask(await desk.charge(), 1_000)
    effect: dict[str, Any] = {"status": 500} if kind == "error" else {}
    desk.scene.sim.set_faults(fault(kind, place=place, match=REFUNDS, times=1, **effect))
    assert (await desk.carry(request)).state == MADE
    assert desk.refunded() == [1_000]
    assert len(set(refund_posts(desk.scene))) == 1


async def test_a_stored_failure_is_not_repeated(desk: Desk) -> None:
    """Once Stripe replays a 500, only lists can tell; past the window people decide."""
    request = await desk.ask(await desk.charge(), 1_000)
    desk.scene.sim.set_faults(fault("error", status=500, place="before", stored=True, match=REFUNDS, times=1))
    for _ in range(4):
        step = await desk.step(request)
    posts = len(refund_posts(desk.scene))
    for _ in range(3):
        step = await desk.step(request)
    assert not step.is_done
    assert len(refund_posts(desk.scene)) == posts
    await desk.scene.set_age(WINDOW_SECONDS + 1)
    assert (await desk.step(request)).state == REVIEW
    assert desk.refunded() == []


@pytest.mark.parametrize("late", ["made", "not made"])
async def test_past_the_window_a_refund_is_never_sent_again(desk: Desk, late: str) -> None:
    """A list finds what was made; what is nowhere goes to people, with an alarm, and under no new key."""
    request = await desk.ask(await desk.charge(), 1_000)
    place = "after" if late == "made" else "before"
    desk.scene.sim.set_faults(fault("drop", place=place, match=REFUNDS))
    await desk.step(request)
    desk.scene.clear_faults()
    await desk.scene.set_age(WINDOW_SECONDS - SAFETY_MARGIN_SECONDS + 1)
    sends = len(refund_posts(desk.scene))
    if late == "not made":
        assert not (await desk.step(request)).is_done
    await desk.scene.set_age(WINDOW_SECONDS + 1)
    step = await desk.step(request)
    assert step.state == (MADE if late == "made" else REVIEW)
    assert len(refund_posts(desk.scene)) == sends
    assert ("refund_review", True) in await desk.scene.decisions() or late == "made"


async def test_what_stripe_refuses_is_told_in_its_words(desk: Desk) -> None:
    """Somebody else refunded it meanwhile: nothing goes back twice, and the request says why."""
    charge_id = await desk.charge()
    request = await desk.ask(charge_id)

    await post(desk.scene.sim.url, "/v1/refunds", payment_intent=request.payment_intent)
    step = await desk.carry(request)
    assert step.state == REFUSED
    assert "already" in step.reason
    assert desk.refunded() == [AMOUNT_MINOR]


async def test_no_more_is_asked_for_than_is_left(desk: Desk) -> None:
    """Open requests count, and so does what went back: together never more than was paid."""
    charge_id = await desk.charge()
    with pytest.raises(InvalidInput, match="has not gone back yet"):
        await desk.ask(charge_id, AMOUNT_MINOR + 1)
    first = await desk.ask(charge_id, AMOUNT_MINOR - 100)
    with pytest.raises(RefusedToStart, match="other requests are open"):
        await desk.ask(charge_id, 101)
    await desk.carry(first)
    with pytest.raises(InvalidInput, match="has not gone back yet"):
        await desk.ask(charge_id, 101)
    await desk.carry(await desk.ask(charge_id))
    assert desk.refunded() == [100, AMOUNT_MINOR - 100]


async def test_requests_at_the_same_time_never_add_up_to_too_much(desk: Desk) -> None:
    """The charge's lock decides between them."""
    charge_id = await desk.charge()
    asked = await asyncio.gather(
        *(desk.ask(charge_id, AMOUNT_MINOR // 2 + 1) for _ in range(5)), return_exceptions=True
    )
    kept = [one for one in asked if not isinstance(one, BaseException)]
    assert len(kept) == 1
    await asyncio.gather(*(desk.carry(kept[0]) for _ in range(4)))
    assert desk.refunded() == [AMOUNT_MINOR // 2 + 1]


async def test_requests_that_waited_for_each_other_never_add_up_to_too_much(desk: Desk) -> None:
    """Whoever waited for the charge's lock counts what was asked for while it waited."""
    charge_id = await desk.charge()
    owner = desk.scene.owner
    async with owner.transaction():
        await owner.execute("SELECT FROM charges WHERE charge_id = $1 FOR UPDATE", charge_id)
        asked = [asyncio.create_task(desk.ask(charge_id, AMOUNT_MINOR)) for _ in range(3)]
        async with asyncio.timeout(10):
            # PostgreSQL tells nobody who waits.
            while await desk.scene.pool.fetchval(WAITING_FOR_LOCKS) < len(asked):  # noqa: ASYNC110
                await asyncio.sleep(0)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in answers].count(RefusedToStart) == len(asked) - 1


async def test_a_duplicate_is_refunded_by_its_own_payment_intent(desk: Desk) -> None:
    """The other payment of the same charge goes back, and the charge's own stays."""
    charge_id = await desk.charge()
    second = await pay_again(desk.scene, await desk.scene.charge(charge_id))
    request = await desk.ask(charge_id, AMOUNT_MINOR, payment_intent=second)
    assert (request.kind, request.payment_intent) == ("duplicate", second)
    assert (await desk.carry(request)).state == MADE
    report = await verify_run(desk.scene.pool, desk.scene.worker().gateway, RUN_ID)
    assert report.clean, report.as_text()


async def test_what_is_of_another_charge_is_not_refunded(desk: Desk) -> None:
    """A PaymentIntent has to carry the charge's identity, and somebody must have paid by it."""
    charge_id = await desk.charge()
    other = await pay_again(desk.scene, await desk.scene.charge(charge_id), identity="0" * 32)
    with pytest.raises(RefusedToStart, match="does not carry the identity"):
        await desk.ask(charge_id, payment_intent=other)
    with pytest.raises(RefusedToStart, match="does not show"):
        await desk.ask(charge_id, payment_intent="pi_nowhere")


@pytest.mark.parametrize(
    ("card", "status"), [("pm_card_pendingRefund", "succeeded"), ("pm_card_refundFail", "failed")]
)
async def test_a_refund_that_is_decided_later_is_told_by_its_event(
    desk: Desk, card: str, status: str
) -> None:
    """The request is made; what becomes of the refund is a look's to find, with an alarm if it failed."""
    charge_id = await desk.charge(card)
    assert (await desk.carry(await desk.ask(charge_id))).state == MADE
    await desk.scene.set_age(40 * 86_400)
    assert desk.scene.sim.movements
    await desk.mail.deliver(*desk.mail.bodies())
    await desk.mail.work(InboxWorker(desk.scene.pool, desk.mail.accounts, in_flight_seconds=0.0))
    assert [row[2] for row in await desk.rows()] == [status]
    assert (await desk.scene.charge(charge_id)).state is State.SUCCEEDED


async def test_what_was_asked_for_can_not_be_changed(desk: Desk) -> None:
    """Neither the amount nor the PaymentIntent of a request, and no step back."""
    request = await desk.ask(await desk.charge(), 1_000)
    for change in ("amount_minor = 2000", "payment_intent = 'pi_other'", "state = 'review'"):
        with pytest.raises(Exception, match=r"can not be changed|no transition"):
            await desk.scene.pool.execute(f"UPDATE refund_requests SET {change}")
    assert await desk.ledger.read(request.request_id) == request


async def test_a_request_that_can_not_be_sent_stands_in_nobody_s_way(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no vault key is to be had, the request is refused, and the same amount can be asked for again."""

    async def refuse(*_: object) -> None:
        raise RefusedToStart("its run may have no such key")

    charge_id = await desk.charge()
    with monkeypatch.context() as patched:
        patched.setattr("worker.refunds.approve_key", refuse)
        with pytest.raises(RefusedToStart, match="no such key"):
            await desk.ask(charge_id)
    [row] = await desk.ledger.newest(limit=10)
    assert (row["state"], row["detail"]) == (REFUSED, "its run may have no such key")
    assert (await desk.carry(await desk.ask(charge_id))).state == MADE
    assert desk.refunded() == [AMOUNT_MINOR]
