"""A run that is being canceled: everything open is canceled at Stripe or was never there, and is counted."""

import pytest

from activities.carry import LATER_SECONDS, End
from activities.send import Sent
from tests.activities.scene import (
    CANCEL,
    CONFIRM,
    CREATE,
    DECLINING_CARD,
    GOOD_CARD,
    RUN_ID,
    SLOW_DEBIT,
    Scene,
    seconds,
)
from tests.activities.test_held_runs import states
from workflows.domain.charge import Charge
from workflows.domain.keys import Operation
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS


async def cancel_and_work(scene: Scene) -> dict[str, End]:
    """Cancel the run, and let a new worker carry what there is."""
    await scene.cancel()
    return await scene.work()


async def test_what_was_only_planned_is_canceled_without_a_request(scene: Scene) -> None:
    """Nothing was sent, so there is nothing to ask Stripe."""
    await scene.plan([GOOD_CARD] * 3)
    assert set((await cancel_and_work(scene)).values()) == {End.SETTLED}
    assert await states(scene) == ["canceled"] * 3
    assert len(scene.sim.requests) == 0
    assert await scene.work() == {}


async def test_a_prepared_charge_is_canceled_at_stripe(scene: Scene) -> None:
    """Its unconfirmed PaymentIntent is canceled by a key of its own, and never confirmed."""
    charge = await scene.prepare(scene.worker())
    assert list((await cancel_and_work(scene)).values()) == [End.SETTLED]
    canceled = await scene.charge()
    assert (canceled.state, canceled.payment_intent) == (State.CANCELED, charge.payment_intent)
    assert scene.posts[-1].key == f"cancel_{charge.payment_intent}_v1"
    assert scene.wire == ["create v1", "cancel v1"]
    assert await scene.open_at_stripe() == []
    await scene.audit()


@pytest.mark.parametrize("place", ["before", "after"], ids=["not_executed", "executed"])
async def test_a_confirm_without_an_answer_is_decided_by_the_cancels(scene: Scene, place: str) -> None:
    """Nobody knows whether it paid: the cancel's answer says so, without a lookup."""
    await scene.plan()
    a = scene.worker()
    prepared = (await a.sender.send_first(await a.claim_one(), CREATE, reason="planned")).charge
    scene.fault("drop", place=place, operation=CONFIRM)
    await a.sender.send_first(prepared, CONFIRM, reason="prepared")
    scene.clear_faults()
    assert list((await cancel_and_work(scene)).values()) == [End.SETTLED]
    assert (await scene.charge()).state is (State.CANCELED if place == "before" else State.SUCCEEDED)
    assert scene.wire[-1] == "cancel v1"
    assert scene.lookups == 0
    assert await scene.open_at_stripe() == []
    await scene.audit()


async def test_a_debit_under_way_is_counted_as_that(scene: Scene) -> None:
    """Stripe can not cancel what the bank is working on: the charge is processing, and not canceled."""
    await scene.plan([SLOW_DEBIT])
    a = scene.worker()
    prepared = (await a.sender.send_first(await a.claim_one(), CREATE, reason="planned")).charge
    await a.transmit(await a.intend(prepared, CONFIRM))
    assert list((await cancel_and_work(scene)).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.PROCESSING
    await scene.audit()


async def test_a_charge_that_waits_is_canceled_before_its_time(scene: Scene) -> None:
    """A confirm that waits for its window's end needs no window to be canceled."""
    await scene.plan()
    scene.fault("error", status=500, stored=True, operation=CONFIRM)
    assert list((await scene.work()).values()) == [End.DEFERRED]
    due_at = await scene.due_at()
    assert due_at is not None
    assert (due_at - await scene.now()).total_seconds() > seconds("23:00")
    assert list((await cancel_and_work(scene)).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.CANCELED
    assert await scene.open_at_stripe() == []
    await scene.audit()


@pytest.mark.parametrize("place", ["before", "after"], ids=["not_booked", "booked"])
async def test_a_create_without_an_answer_is_settled_and_then_canceled(scene: Scene, place: str) -> None:
    """Looked up, the same key sent again where nothing is found, and what there is then is canceled."""
    await scene.plan()
    a = scene.worker()
    scene.fault("drop", place=place, operation=CREATE)
    await a.sender.send_first(await a.claim_one(), CREATE, reason="planned")
    scene.clear_faults()
    assert list((await cancel_and_work(scene)).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.CANCELED
    resends = ["create v1"] if place == "before" else []
    assert scene.wire == ["create v1", *resends, "cancel v1"]
    assert await scene.open_at_stripe() == []
    await scene.audit()


async def test_past_the_window_a_create_that_is_nowhere_is_canceled(scene: Scene) -> None:
    """No confirm was ever intended and a complete list does not show it: no new version, canceled."""
    await scene.plan()
    a = scene.worker()
    await a.intend(await a.claim_one(), CREATE)
    await scene.set_age(WINDOW_SECONDS - 60)
    assert list((await cancel_and_work(scene)).values()) == [End.DEFERRED]
    assert (await scene.charge()).state is State.CREATING
    await scene.set_age(WINDOW_SECONDS)
    assert list((await scene.work()).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.CANCELED
    assert scene.posts == []
    assert (await scene.decisions())[-1] == ("canceled_unfound", False)
    await scene.audit()


async def test_a_create_that_was_refused_entry_needs_no_stripe(scene: Scene) -> None:
    """Every send of it was answered 401: nothing was executed, so it is canceled with the key still wrong."""
    await scene.plan()
    scene.fault("error", status=401)
    assert list((await scene.work()).values()) == [End.LEFT]
    sent = len(scene.sim.requests)
    assert list((await cancel_and_work(scene)).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.CANCELED
    assert len(scene.sim.requests) == sent
    await scene.audit()


async def test_an_earlier_versions_payment_intent_is_canceled_too(scene: Scene) -> None:
    """v1 was booked late, v2 is nowhere past its window: v1's is taken to be canceled, never to be paid."""
    a, b = scene.worker(), scene.worker()
    await scene.plan()
    old = await a.intend(await a.claim_one(), CREATE)
    await scene.set_age(WINDOW_SECONDS)
    charge = await b.claim_one()
    await b.intend(charge, CREATE)
    late = await a.transmit(old)
    assert late.payment_intent is not None
    await scene.set_age(2 * WINDOW_SECONDS)
    assert list((await cancel_and_work(scene)).values()) == [End.SETTLED]
    canceled = await scene.charge()
    assert (canceled.state, canceled.payment_intent) == (State.CANCELED, late.payment_intent.id)
    assert scene.wire == ["create v1", "cancel v1"]
    assert await scene.decisions() == [("adopted_to_cancel", False)]
    assert await scene.open_at_stripe() == []
    await scene.audit()


async def test_a_leftover_of_another_amount_is_canceled_and_not_reviewed(scene: Scene) -> None:
    """Whatever a PaymentIntent was about, once canceled it can never succeed."""
    a, b = scene.worker(), scene.worker()
    await scene.plan()
    old = await a.intend(await a.claim_one(), CREATE)
    await scene.set_age(WINDOW_SECONDS)
    await b.intend(await b.claim_one(), CREATE)
    await a.transmit(old)
    await scene.owner.execute("UPDATE charges SET amount_minor = amount_minor + 1")
    await scene.set_age(2 * WINDOW_SECONDS)
    assert list((await cancel_and_work(scene)).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.CANCELED
    assert await scene.alarms() == 0


@pytest.mark.parametrize("place", ["before", "after"], ids=["not_executed", "executed"])
async def test_a_lost_answer_to_the_cancel_is_looked_up(scene: Scene, place: str) -> None:
    """In flight like any other operation: asked by the PaymentIntent's id, and sent again if need be."""
    await scene.prepare(scene.worker())
    scene.fault("drop", place=place, operation=CANCEL, times=1)
    assert list((await cancel_and_work(scene)).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.CANCELED
    assert scene.wire.count("cancel v1") == (2 if place == "before" else 1)
    assert scene.lookups == 1
    await scene.audit()


async def test_a_busy_stripe_is_asked_to_cancel_again(scene: Scene) -> None:
    """429 to the cancel: the same key later, in the next pass too."""
    await scene.prepare(scene.worker())
    scene.fault("error", status=429, operation=CANCEL)
    assert list((await cancel_and_work(scene)).values()) == [End.DEFERRED]
    assert (await scene.charge()).state is State.CANCELING
    scene.clear_faults()
    await scene.set_age(LATER_SECONDS)
    assert list((await scene.work()).values()) == [End.SETTLED]
    assert set(scene.wire[1:]) == {"cancel v1"}
    assert (await scene.charge()).state is State.CANCELED
    await scene.audit()


async def test_a_cancel_without_an_answer_for_a_day_gets_a_new_key(scene: Scene) -> None:
    """Past its window a cancel is re-keyed like any operation, in a canceled run as well."""
    a = scene.worker()
    charge = await scene.prepare(a)
    await scene.cancel()
    await a.intend(charge, CANCEL)
    await scene.set_age(WINDOW_SECONDS)
    assert list((await scene.work()).values()) == [End.SETTLED]
    assert scene.wire == ["create v1", "cancel v2"]
    assert (await scene.charge()).state is State.CANCELED


@pytest.mark.parametrize("operation", [CREATE, CONFIRM], ids=["create", "confirm"])
async def test_a_cancel_in_the_middle_takes_over_where_the_answer_put_the_charge(
    scene: Scene, operation: Operation
) -> None:
    """The cancel commits while a request is on the wire: what it did decides what there is to cancel."""
    await scene.plan([GOOD_CARD] * 2)
    a = scene.worker()
    send_first = a.sender.send_first

    async def send_and_be_canceled(charge: Charge, sending: Operation, *, reason: str) -> Sent:
        sent = await send_first(charge, sending, reason=reason)
        if sending is operation:
            await scene.cancel()
        return sent

    a.sender.send_first = send_and_be_canceled  # type: ignore[assignment, method-assign]
    ends = [await a.carrier.carry(charge) for charge in await a.claim()]
    assert ends == [End.SETTLED] * 2
    assert await states(scene) == ["canceled", "canceled" if operation is CREATE else "succeeded"]
    assert scene.wire == (["create v1", "cancel v1"] if operation is CREATE else ["create v1", "confirm v1"])
    assert await scene.open_at_stripe() == []
    await scene.audit()


async def test_what_has_ended_stays_as_it_ended(scene: Scene) -> None:
    """Paid, declined: a cancel touches neither, and the counts add up to what was selected."""
    await scene.plan([GOOD_CARD, DECLINING_CARD, GOOD_CARD, GOOD_CARD])
    a = scene.worker()
    first, second, third, _ = sorted(await a.claim(), key=lambda charge: charge.customer)
    for charge in (first, second):
        await a.carrier.carry(charge)
    await a.sender.send_first(third, CREATE, reason="planned")
    await cancel_and_work(scene)
    assert await states(scene) == ["canceled", "canceled", "declined", "succeeded"]
    counted = await scene.pool.fetchval("SELECT sum(lines) FROM run_counts($1)", RUN_ID)
    assert counted == await scene.pool.fetchval("SELECT selected FROM billing_runs")
    assert await scene.open_at_stripe() == []
    await scene.audit()
