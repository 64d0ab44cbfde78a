"""A later run takes over what ended without success, and carries it from where its keys are."""

import asyncpg
import pytest

from activities.carry import End
from activities.explain import explain_charge
from activities.ledger.control import ControlLedger
from tests.activities.scene import (
    AMOUNT_MINOR,
    CANCEL,
    CONFIRM,
    CREATE,
    DECLINING_CARD,
    GOOD_CARD,
    RUN_ID,
    Scene,
    seconds,
)
from tests.activities.second_run import LATER, again, bill_again, close, counts
from workflows.domain.keys import IdempotencyKey, Operation
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS

CORRECTED_MINOR = AMOUNT_MINOR + 100
RECOVERING_CARD = "pm_card_declineOnceThenSucceed_later"
ASKING_CARD = "pm_card_authenticationRequired_asks"


async def end_first_run(scene: Scene, card: str = DECLINING_CARD, state: State = State.DECLINED) -> None:
    """Let the first run charge one customer without success, and close it."""
    await scene.plan([card])
    assert list((await scene.work()).values()) == [End.SETTLED]
    assert (await scene.charge()).state is state
    await close(scene)


async def cancel_first_run(scene: Scene) -> None:
    """Cancel the first run and close it."""
    await scene.cancel()
    assert set((await scene.work()).values()) <= {End.SETTLED}
    await close(scene)


async def due_in_seconds(scene: Scene) -> float:
    """Return in how many seconds the only charge is due."""
    due_at = await scene.due_at()
    assert due_at is not None
    return (due_at - await scene.now()).total_seconds()


async def test_what_did_not_change_goes_on_with_its_payment_intent(scene: Scene) -> None:
    """Declined, then taken over: one more confirm of the same PaymentIntent, by the card there is now."""
    await end_first_run(scene)
    declined = await scene.charge()
    await scene.set_age(seconds("2:00"))
    await bill_again(scene, again())
    assert list((await scene.work(LATER)).values()) == [End.DEFERRED]
    assert await due_in_seconds(scene) == seconds("22:00")
    await scene.set_age(WINDOW_SECONDS)
    assert list((await scene.work(LATER)).values()) == [End.SETTLED]
    paid = await scene.charge()
    assert (paid.state, paid.payment_intent) == (State.SUCCEEDED, declined.payment_intent)
    assert scene.wire == ["create v1", "confirm v1", "confirm v2"]
    assert await counts(scene, RUN_ID) == {"taken_over": 1}
    await scene.audit()


async def test_every_rekey_says_its_age_its_lookup_and_its_reason(scene: Scene) -> None:
    """The decision has them as evidence, the key has them from the very commit that opened it."""
    await end_first_run(scene)
    await scene.set_age(WINDOW_SECONDS)
    await bill_again(scene, again())
    await scene.work(LATER)
    row = await scene.pool.fetchrow("SELECT reason, evidence FROM decisions WHERE decision = 'reopened'")
    assert row is not None
    assert row["evidence"]["age_seconds"] == WINDOW_SECONDS
    [request] = row["evidence"]["requests"]
    reason = await scene.pool.fetchval("SELECT reason FROM keys WHERE operation = 'confirm' AND version = 2")
    assert reason == f"{row['reason']} (the key before is {WINDOW_SECONDS} s old; looked up by {request})"
    assert "the window has passed" in reason


async def test_the_charges_story_tells_of_the_takeover(scene: Scene) -> None:
    """Who had it first, how it ended there, who took it over: in the order in which it happened."""
    await end_first_run(scene)
    await scene.set_age(WINDOW_SECONDS)
    await bill_again(scene, again())
    await scene.work(LATER)
    story = await explain_charge(scene.pool, "cus_1")
    told = [event.summary for event in story.events]
    [taken_over] = [text for text in told if text.startswith("taken over from")]
    assert taken_over == f"taken over from {RUN_ID} by {LATER}: it ended declined"
    assert story.run_id == LATER


@pytest.mark.parametrize("what", ["amount", "currency", "description"])
async def test_what_was_corrected_goes_through_canceling_first(scene: Scene, what: str) -> None:
    """PI1 is canceled, the window passes, then the corrected body is created anew by the same run."""
    await end_first_run(scene)
    declined = await scene.charge()
    await scene.set_age(seconds("2:00"))
    changes = {"amount": {"amount_minor": CORRECTED_MINOR}, "currency": {"currency": "eur"}}
    await bill_again(scene, again(**changes.get(what, {"description": "March"})))  # type: ignore[arg-type]
    assert (await scene.charge()).amount_minor == AMOUNT_MINOR
    assert list((await scene.work(LATER)).values()) == [End.DEFERRED]
    waiting = await scene.charge()
    assert (waiting.state, waiting.payment_intent) == (State.PLANNED, declined.payment_intent)
    assert await due_in_seconds(scene) == seconds("22:00")
    assert scene.wire[-1] == "cancel v1"
    await scene.set_age(WINDOW_SECONDS)
    assert list((await scene.work(LATER)).values()) == [End.SETTLED]
    assert scene.wire[-2:] == ["create v2", "confirm v2"]
    paid = await scene.charge()
    assert paid.state is State.SUCCEEDED
    assert paid.payment_intent != declined.payment_intent
    assert (paid.amount_minor, paid.currency, paid.description) == (
        CORRECTED_MINOR if what == "amount" else AMOUNT_MINOR,
        "eur" if what == "currency" else "usd",
        "March" if what == "description" else None,
    )
    assert await scene.open_at_stripe() == []
    await close(scene, LATER)
    await scene.audit()


async def test_a_canceled_run_is_billed_again_to_the_last_line(scene: Scene) -> None:
    """Planned, created, prepared, unanswered: whatever a cancel found, the next run charges every line."""
    ids = await scene.plan([GOOD_CARD] * 4)
    a = scene.worker()
    first, second, third, _ = sorted(await a.claim(), key=lambda charge: charge.customer)
    await a.sender.send_first(first, CREATE, reason="planned")
    scene.fault("drop", place="after", operation=CREATE)
    await a.sender.send_first(second, CREATE, reason="planned")
    scene.clear_faults()
    prepared = await a.sender.send_first(third, CREATE, reason="planned")
    await a.intend(prepared.charge, CONFIRM)
    await cancel_first_run(scene)
    assert await counts(scene, RUN_ID) == {"canceled": 4}
    later = await bill_again(scene, *(again(number) for number in range(1, 5)))
    assert await counts(scene, RUN_ID) == {"taken_over": 4}
    assert later.selected == 4
    assert sorted((await scene.work(LATER)).values()) == [End.DEFERRED] * 3 + [End.SETTLED]
    await scene.set_age(WINDOW_SECONDS)
    assert set((await scene.work(LATER)).values()) == {End.SETTLED}
    assert await counts(scene, LATER) == {"succeeded": len(ids)}
    await close(scene, LATER)
    assert len(scene.sim.movements) == len(ids)
    await scene.audit()


@pytest.mark.parametrize("operation", [CREATE, CONFIRM], ids=["create", "confirm"])
async def test_what_stripe_refused_is_sent_again_past_the_window(scene: Scene, operation: Operation) -> None:
    """Not executed, but a key all the same: the corrected request waits for its window like any other."""
    await scene.plan()
    scene.fault("error", status=400, operation=operation)
    assert list((await scene.work()).values()) == [End.SETTLED]
    scene.clear_faults()
    assert (await scene.charge()).state is State.REFUSED
    await close(scene)
    await bill_again(scene, again())
    assert list((await scene.work(LATER)).values()) == [End.DEFERRED]
    await scene.set_age(WINDOW_SECONDS)
    assert list((await scene.work(LATER)).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.SUCCEEDED
    assert f"{operation} v2" in scene.wire
    await scene.audit()


@pytest.mark.parametrize("corrected", [False, True], ids=["confirm", "create"])
async def test_a_second_refusal_is_one_as_well(scene: Scene, corrected: bool) -> None:  # noqa: FBT001 - parametrized
    """Every earlier send has its answer, so 400 to the next version refuses: the run does not hang on it."""
    await end_first_run(scene)
    await scene.set_age(WINDOW_SECONDS)
    await bill_again(scene, again(amount_minor=CORRECTED_MINOR if corrected else AMOUNT_MINOR))
    scene.sim.set_faults(
        *({"name": f"refused {one}", "match": {"path": path}, "effect": {"kind": "error", "status": 400}}
          for one, path in (("create", "^/v1/payment_intents$"), ("confirm", "/confirm$")))
    )  # fmt: skip
    assert list((await scene.work(LATER)).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.REFUSED
    assert scene.sim.movements == []
    await scene.audit()


async def test_a_customer_who_never_came_is_charged_again(scene: Scene) -> None:
    """Once nobody waits for the customer any more, a later run tries the card that they have now."""
    await end_first_run(scene, ASKING_CARD, State.NEEDS_CUSTOMER)
    await scene.set_age(WINDOW_SECONDS)
    await bill_again(scene, again())
    assert list((await scene.work(LATER)).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.SUCCEEDED
    assert scene.wire == ["create v1", "confirm v1", "confirm v2"]
    await scene.audit()


async def test_a_debit_that_failed_after_the_close_is_taken_over(scene: Scene) -> None:
    """Processing when its run closed, declined since: not charged, so a later run may."""
    await end_first_run(scene)
    await scene.owner.execute("ALTER TABLE charges DISABLE TRIGGER charges_check_step")
    try:
        await scene.owner.execute("UPDATE charges SET state = 'processing'")
    finally:
        await scene.owner.execute("ALTER TABLE charges ENABLE TRIGGER charges_check_step")
    await scene.pool.execute("UPDATE charges SET state = 'declined', reason = 'the debit failed'")
    await scene.set_age(WINDOW_SECONDS)
    await bill_again(scene, again())
    assert list((await scene.work(LATER)).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.SUCCEEDED
    await scene.audit()


async def test_a_payment_intent_that_stripe_canceled_makes_way(scene: Scene) -> None:
    """The lookup before the confirm finds it canceled: back to create, at the next version."""
    await end_first_run(scene)
    charge = await scene.charge()
    a = scene.worker()
    await a.gateway.post(
        CANCEL,
        account=a.sender._account,
        path=f"/v1/payment_intents/{charge.payment_intent}/cancel",
        parameters={},
        key=IdempotencyKey("cancel_by_hand"),
    )
    await scene.set_age(WINDOW_SECONDS)
    await bill_again(scene, again())
    assert list((await scene.work(LATER)).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.SUCCEEDED
    assert scene.wire[-2:] == ["create v2", "confirm v2"]


async def test_leftovers_beside_a_canceled_payment_intent_are_canceled_one_by_one(scene: Scene) -> None:
    """Create v1 ran three times, its key pruned in between: all are canceled, then comes v2."""
    a = scene.worker()
    await scene.plan()
    first = await a.intend(await a.claim_one(), CREATE)
    again_sent = await a.intend_again(await scene.charge())
    third = await a.intend_again(await scene.charge())
    await a.record(first, await a.transmit(first))
    await cancel_first_run(scene)
    late = []
    for number, intent in enumerate((again_sent, third), start=1):
        await scene.set_age(number * (WINDOW_SECONDS + 60))
        answer = await a.transmit(intent)
        assert answer.payment_intent is not None
        late.append(answer.payment_intent.id)
    assert len(await scene.open_at_stripe()) == 2
    await bill_again(scene, again(amount_minor=CORRECTED_MINOR))
    assert list((await scene.work(LATER)).values()) == [End.SETTLED]
    assert await scene.open_at_stripe() == []
    canceled = [request.path.split("/")[3] for request in scene.posts if request.path.endswith("/cancel")]
    assert canceled[1:] == late
    assert scene.wire[-2:] == ["create v2", "confirm v1"]
    assert [movement.amount for movement in scene.sim.movements] == [CORRECTED_MINOR]
    await scene.audit()


async def test_a_held_run_does_not_reopen(scene: Scene) -> None:
    """A paused run sends nothing for the first time, and a cancel that makes way is one of those."""
    await end_first_run(scene)
    await scene.set_age(WINDOW_SECONDS)
    await bill_again(scene, again(amount_minor=CORRECTED_MINOR))
    await scene.pool.execute(
        "UPDATE billing_runs SET hold = 'paused', hold_reason = 'x' WHERE run_id = $1", LATER
    )
    sent = len(scene.sim.requests)
    assert await scene.work(LATER) == {}
    assert len(scene.sim.requests) == sent
    await scene.pool.execute(
        "UPDATE billing_runs SET hold = NULL, hold_reason = NULL WHERE run_id = $1", LATER
    )
    assert list((await scene.work(LATER)).values()) == [End.SETTLED]
    await scene.audit()


@pytest.mark.parametrize("corrected", [False, True], ids=["unchanged", "corrected"])
async def test_a_canceled_run_asks_stripe_about_what_it_took_over(scene: Scene, corrected: bool) -> None:  # noqa: FBT001 - parametrized
    """Nothing was sent by this run, but a confirm by the one before: Stripe's answer makes it canceled."""
    await end_first_run(scene)
    await bill_again(scene, again(amount_minor=CORRECTED_MINOR if corrected else AMOUNT_MINOR))
    await scene.cancel(LATER)
    assert await scene.worker().ledger.cancel_planned(LATER, None, limit=10) == 0
    assert list((await scene.work(LATER)).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.CANCELED
    assert scene.wire[-1] == "cancel v1"
    await close(scene, LATER)
    await scene.audit()


@pytest.mark.parametrize(
    ("card", "state"), [(DECLINING_CARD, State.DECLINED), (ASKING_CARD, State.NEEDS_CUSTOMER)]
)
@pytest.mark.parametrize("corrected", [False, True], ids=["unchanged", "corrected"])
async def test_what_nobody_approved_is_given_back_as_it_was(
    scene: Scene,
    corrected: bool,  # noqa: FBT001 - parametrized
    card: str,
    state: State,
) -> None:
    """A run given up before its approval asks Stripe nothing, so it needs no key for it; a third bills it."""
    await end_first_run(scene, card, state)
    amount_minor = CORRECTED_MINOR if corrected else AMOUNT_MINOR
    await bill_again(scene, again(amount_minor=amount_minor), approved=False)
    await scene.cancel(LATER)
    sent = len(scene.sim.requests)
    ledger = scene.worker().ledger
    assert await ledger.cancel_planned(LATER, None, limit=10) == 1
    assert not await ledger.has_open(LATER)
    assert len(scene.sim.requests) == sent
    assert await counts(scene, LATER) == {str(state): 1}
    await close(scene, LATER)
    third = f"{RUN_ID}/r3"
    await bill_again(scene, again(amount_minor=amount_minor), run_id=third)
    await scene.work(third)
    await scene.set_age(WINDOW_SECONDS)
    assert list((await scene.work(third)).values()) == [End.SETTLED]
    assert [movement.amount for movement in scene.sim.movements] == [amount_minor]
    await scene.audit()


async def test_what_stripe_has_canceled_already_is_canceled_without_a_request(scene: Scene) -> None:
    """Its PaymentIntent made way, then the run was canceled: there is nothing left to ask."""
    await end_first_run(scene)
    await bill_again(scene, again(amount_minor=CORRECTED_MINOR))
    assert list((await scene.work(LATER)).values()) == [End.DEFERRED]
    await scene.cancel(LATER)
    sent = len(scene.sim.requests)
    assert await scene.worker().ledger.cancel_planned(LATER, None, limit=10) == 1
    assert len(scene.sim.requests) == sent
    assert await counts(scene, LATER) == {"canceled": 1}
    third = f"{RUN_ID}/r3"
    await close(scene, LATER)
    await scene.set_age(WINDOW_SECONDS)
    await bill_again(scene, again(amount_minor=CORRECTED_MINOR), run_id=third)
    assert list((await scene.work(third)).values()) == [End.SETTLED]
    assert [movement.amount for movement in scene.sim.movements] == [CORRECTED_MINOR]
    await scene.audit()


async def test_a_run_that_is_canceled_while_it_makes_way_ends_canceled(scene: Scene) -> None:
    """The cancel of PI1 was meant for another create; by the time it is answered nobody wants one."""
    await end_first_run(scene)
    await bill_again(scene, again(amount_minor=CORRECTED_MINOR))
    b = scene.worker(run_id=LATER)
    intent = await b.intend(await b.claim_one(), CANCEL)
    await scene.cancel(LATER)
    assert (await b.record(intent, await b.transmit(intent))).state is State.CANCELED


@pytest.mark.parametrize("approved", [False, True], ids=["waiting", "approved"])
async def test_a_late_word_of_the_first_runs_cancel_changes_nothing(scene: Scene, approved: bool) -> None:  # noqa: FBT001 - parametrized
    """Its answer comes when the charge is taken over already: canceled, as was known, and still planned."""
    a = scene.worker()
    charge = await scene.prepare(a)
    await scene.cancel()
    intent = await a.intend(charge, CANCEL)
    answer = await a.transmit(intent)
    assert list((await scene.work()).values()) == [End.SETTLED]
    await close(scene)
    run = await bill_again(scene, again(), approved=approved)
    assert (await a.record(intent, answer)).state is State.PLANNED
    if not approved:
        request = {"plan_hash": run.plan_hash or "", "who": "tests", "reason": "scripted"}
        await ControlLedger(scene.pool).approve(LATER, **request)
    await scene.set_age(WINDOW_SECONDS)
    assert list((await scene.work(LATER)).values()) == [End.SETTLED]
    assert (await scene.charge()).state is State.SUCCEEDED
    await scene.audit()


async def test_a_row_says_what_its_payment_intent_is_of(scene: Scene) -> None:
    """No statement gives a charge another amount while the PaymentIntent that it has can still be paid."""
    await end_first_run(scene)
    with pytest.raises(asyncpg.CheckViolationError, match="can still be paid"):
        await scene.pool.execute("UPDATE charges SET amount_minor = amount_minor + 1")
