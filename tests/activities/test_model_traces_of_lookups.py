"""The rest of the traces of `test_model_traces`, T7 to T12: stale lookups, and keys."""

from dataclasses import replace

import pytest

from activities.carry import End
from activities.settle import OPERATION_OF, Step
from tests.activities.scene import (
    CANCEL,
    CONFIRM,
    CREATE,
    SLOW_DEBIT,
    Scene,
    Worker,
    seconds,
)
from workflows.domain.answer import Lookup
from workflows.domain.charge import Charge, Intent
from workflows.domain.errors import InvariantViolation, StaleWrite
from workflows.domain.keys import Operation, key_for
from workflows.domain.recovery import NotSettled, Settled, find_confirmed
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS

RECOVERING_CARD = "pm_card_declineOnceThenSucceed_later"


async def look_up(worker: Worker, charge: Charge) -> Lookup:
    """Ask Stripe about a charge in flight, as settling does, without applying anything."""
    operation = OPERATION_OF[charge.state]
    frozen, _ = await worker.ledger.frozen_key(charge.key_of(operation, charge.version_of(operation)))
    return await worker.settler._look_up(charge, operation, frozen)


async def test_t7_a_recorded_payment_intent_is_the_row_s_own(scene: Scene) -> None:
    """A sweep listed PI1 as unknown, then PI1 was recorded: the cancel intent of the stale row is refused."""
    a, b = scene.worker(), scene.worker()
    await scene.plan()
    first = await a.intend(await a.claim_one(), CREATE)
    created = await a.transmit(first)
    assert created.payment_intent is not None
    stale = replace(await scene.charge(), payment_intent=created.payment_intent.id)
    await a.record(first, created)
    with pytest.raises(StaleWrite):
        await b.intend(stale, CANCEL)
    assert (await scene.charge()).state is State.PREPARED


async def test_t8_a_get_from_before_the_confirm_is_not_a_failed_debit(scene: Scene) -> None:
    """B's GET was made before A's confirm ran: applied after `processing` was recorded, it does nothing."""
    a, b = scene.worker(), scene.worker()
    confirm = await a.intend(await scene.prepare(a, card=SLOW_DEBIT), CONFIRM)
    seen = await scene.charge()
    lookup = await look_up(b, seen)
    assert lookup.payment_intents[0].status == "requires_confirmation"
    processing = await a.record(confirm, await a.transmit(confirm))
    assert processing.state is State.PROCESSING
    for window_passed in (False, True):
        finding = find_confirmed(
            lookup,
            payment_intent_id=seen.payment_intent or "",
            latest_charge_before=None,
            window_passed=window_passed,
            key_answered=False,
        )
        assert isinstance(finding, NotSettled)
    for wrong in (State.DECLINED, State.NEEDS_CUSTOMER):
        with pytest.raises(StaleWrite):
            await b.ledger.settle(
                seen,
                wrong,
                payment_intent=seen.payment_intent or "",
                latest_charge=None,
                reason="stale",
            )
    with pytest.raises(StaleWrite):
        await b.intend_again(seen)
    assert (await scene.charge()).state is State.PROCESSING
    await scene.audit()


async def test_t8_b_a_settler_overtaken_by_the_answer_goes_by_the_row(scene: Scene) -> None:
    """The whole step: B looks up, A's answer is recorded, B's step ends without a write or a send."""
    a, b = scene.worker(), scene.worker()
    confirm = await a.intend(await scene.prepare(a, card=SLOW_DEBIT), CONFIRM)
    mine = await b.claim_one()
    look = b.settler._look_up

    async def look_and_be_overtaken(*arguments: object) -> Lookup:
        lookup = await look(*arguments)  # type: ignore[arg-type] # passed on as they came
        await a.record(confirm, await a.transmit(confirm))
        return lookup

    b.settler._look_up = look_and_be_overtaken  # type: ignore[method-assign, assignment]
    assert await b.carrier.carry(mine) is End.SETTLED
    assert (await scene.charge()).state is State.PROCESSING
    assert scene.wire == ["create v1", "confirm v1"]


async def second_confirm(scene: Scene, a: Worker) -> Intent:
    """Decline c1, and let A intend c2 on the same PaymentIntent past the window and freeze."""
    declined = await a.sender.send_first(
        await scene.prepare(a, card=RECOVERING_CARD), CONFIRM, reason="scripted"
    )
    assert declined.charge.state is State.DECLINED
    await scene.set_age(WINDOW_SECONDS)
    return await a.intend(declined.charge, CONFIRM)


@pytest.mark.parametrize("age", ["24:10", "47:50", "72:00"])
async def test_t9_an_earlier_version_s_decline_is_not_the_newest_one_s(scene: Scene, age: str) -> None:
    """c2 is outstanding; a refetch shows c1's decline. It decides nothing at any age, and c2 pays."""
    a, b = scene.worker(), scene.worker()
    confirm = await second_confirm(scene, a)
    await scene.set_age(seconds(age))
    seen = await scene.charge()
    lookup = await look_up(b, seen)
    assert lookup.payment_intents[0].status == "requires_payment_method"
    frozen, _ = await b.ledger.frozen_key(confirm.key)
    finding = find_confirmed(
        lookup,
        payment_intent_id=seen.payment_intent or "",
        latest_charge_before=frozen.latest_charge_before,
        window_passed=seconds(age) >= 2 * WINDOW_SECONDS,
        key_answered=frozen.answered,
    )
    assert isinstance(finding, NotSettled)
    paid = await a.record(confirm, await a.transmit(confirm))
    assert (paid.state, paid.confirm_version) == (State.SUCCEEDED, 2)
    await scene.audit()


async def test_t9_b_the_newest_version_s_own_decline_counts(scene: Scene) -> None:
    """c2 is declined and its answer lost: past the window its failed charge, newer than c1's, counts."""
    a, b = scene.worker(), scene.worker()
    declining = await a.sender.send_first(
        await scene.prepare(a, card="pm_card_declineTwiceThenSucceed_later"), CONFIRM, reason="scripted"
    )
    await scene.set_age(WINDOW_SECONDS)
    confirm = await a.intend(declining.charge, CONFIRM)
    await a.transmit(confirm)
    await scene.set_age(2 * WINDOW_SECONDS)
    frozen, _ = await b.ledger.frozen_key(confirm.key)
    finding = find_confirmed(
        await look_up(b, await scene.charge()),
        payment_intent_id=confirm.charge.payment_intent or "",
        latest_charge_before=frozen.latest_charge_before,
        window_passed=True,
        key_answered=False,
    )
    assert isinstance(finding, Settled)
    assert finding.state is State.DECLINED
    assert isinstance(await b.settler.settle(await b.claim_one()), Step)
    assert (await scene.charge()).state is State.DECLINED
    await scene.audit()


async def test_t12_each_payment_intent_has_cancel_keys_of_its_own(scene: Scene) -> None:
    """PI1 was canceled and PI2 made: PI2's first cancel is another key, and needs no window to pass."""
    a = scene.worker()
    charge = await scene.prepare(a)
    first = await a.intend(charge, CANCEL)
    canceled = await a.record(first, await a.transmit(first))
    await scene.set_age(WINDOW_SECONDS)
    made = await a.sender.send_first(canceled, CREATE, reason="scripted")
    second = await a.intend(made.charge, CANCEL)
    assert second.key != first.key
    assert (made.charge.payment_intent or "?") in second.key
    after = await a.record(second, await a.transmit(second))
    assert after.state is State.CANCELED
    assert scene.sim.movements == []
    await scene.audit()


async def test_t12_b_a_cancel_of_the_same_payment_intent_waits_for_the_window(scene: Scene) -> None:
    """A second version of a PaymentIntent's own cancel is a re-key like any other."""
    a = scene.worker()
    charge = await scene.prepare(a)
    first = await a.intend(charge, CANCEL)
    with pytest.raises(StaleWrite):
        await a.intend(first.charge, CANCEL)
    await scene.set_age(WINDOW_SECONDS)
    assert (await a.intend(first.charge, CANCEL)).key.endswith("_v2")


def test_t12_c_two_partial_refunds_are_two_keys() -> None:
    """A refund's key names the request: a second partial refund is another, and none has a version 2."""
    keys = {key_for(Operation.REFUND, request, 1) for request in ("rr_1", "rr_2")}
    assert len(keys) == 2
    with pytest.raises(InvariantViolation):
        key_for(Operation.REFUND, "rr_1", 2)
