"""What only others can end: customers who have to pay by themselves, and banks. Also I08, I13, I15, I16."""

from collections.abc import AsyncIterator

import pytest

from activities.ledger.runs import RunLedger
from tests.activities.days import DAY, Days, open_days
from tests.activities.scene import CONFIRM, DECLINING_CARD, GOOD_CARD, START, Scene
from workflows.domain.states import State

ASKS_ALWAYS = "pm_card_authenticationRequired_x"
DEBIT, FAILING_DEBIT = "pm_sepaDebit_x", "pm_sepaDebit_failed_x"


@pytest.fixture
async def days(scene: Scene) -> AsyncIterator[Days]:
    """A run over days."""
    async with open_days(scene) as opened:
        yield opened


async def handed_over(scene: Scene) -> list[list[str]]:
    """Return the PaymentIntents of each event that handed some over."""
    rows = await scene.pool.fetch(
        "SELECT detail FROM run_events WHERE action = 'customer_needed' ORDER BY event_id"
    )
    return [row["detail"]["payment_intents"] for row in rows]


def settle_debit_after(scene: Scene, payment_intent: str | None, days: float) -> None:
    """Let the bank decide a debit so many days after the start."""
    simulator = scene.sim.simulator
    (account,) = (one for one in simulator.accounts.values() if payment_intent in one.intents.by_id)
    intent = account.intents.by_id[payment_intent or ""]
    intent.settle_at = START + days * DAY
    simulator.agenda.put("payment_intent", account.id, intent)


async def test_i16_a_customer_is_handed_over_once_and_settles_when_they_pay(scene: Scene, days: Days) -> None:
    """One event with the PaymentIntent, nothing sent for days, and paying on session ends it."""
    (charge_id,) = await days.charge([ASKS_ALWAYS])
    assert (await days.plan()).customers == 1
    charge = await scene.charge(charge_id)
    assert await handed_over(scene) == [[charge.payment_intent]]
    for day in range(1, 9):
        await days.day(day)
    assert scene.wire == ["create v1", "confirm v1"]
    await days.pay_on_session(charge_id)
    assert (await days.day(9)).open == 0
    assert (await scene.charge(charge_id)).state is State.SUCCEEDED
    assert await handed_over(scene) == [[charge.payment_intent]]
    assert await days.outcomes() == [("customer", "succeeded")]
    assert await days.close() == {"succeeded": 1}
    assert len(scene.sim.movements) == 1


async def test_a_customer_who_tried_and_failed_may_try_again(scene: Scene, days: Days) -> None:
    """A decline on session is the customer's business: the run neither retries nor gives up early."""
    (charge_id,) = await days.charge([ASKS_ALWAYS])
    await days.plan()
    await days.pay_on_session(charge_id, DECLINING_CARD)
    await days.day(4)
    assert (await scene.charge(charge_id)).state is State.NEEDS_CUSTOMER
    await days.pay_on_session(charge_id)
    await days.day(5)
    assert (await scene.charge(charge_id)).state is State.SUCCEEDED
    assert [send for send in scene.wire if send.startswith("confirm v")] == ["confirm v1"]


async def test_a_customer_who_never_comes_is_given_up(scene: Scene, days: Days) -> None:
    """After 23 days the run waits no longer; the line stays needs_customer, for a later run or for people."""
    await days.charge([ASKS_ALWAYS])
    await days.plan()
    await days.day(22.9)
    assert (await days.due()).next_due_seconds == pytest.approx(0.1 * DAY)
    assert (await days.day(23)).open == 0
    assert await days.outcomes() == [("customer", "customer_never_came")]
    assert await days.close() == {"needs_customer": 1}


async def test_a_retry_that_needs_the_customer_hands_over(scene: Scene, days: Days) -> None:
    """A replaced card that asks for its customer turns the retry into waiting for them."""
    (charge_id,) = await days.charge([DECLINING_CARD])
    await days.plan()
    days.replace_card((await scene.charge(charge_id)).customer, "pm_card_authenticationRequired")
    await days.day(3)
    charge = await scene.charge(charge_id)
    assert charge.state is State.NEEDS_CUSTOMER
    assert await handed_over(scene) == [[charge.payment_intent]]
    await days.day(7)
    assert scene.wire == ["create v1", "confirm v1", "confirm v2"]
    await days.pay_on_session(charge_id)
    assert (await days.day(8)).open == 0
    assert await days.outcomes() == [("retry", "needs_customer"), ("customer", "succeeded")]
    assert await days.close() == {"succeeded": 1}


async def test_a_canceled_run_asks_about_its_customers_once_more(scene: Scene, days: Days) -> None:
    """Who has paid by then counts as paid; nobody's PaymentIntent is canceled under their hands."""
    paid, away = await days.charge([ASKS_ALWAYS, ASKS_ALWAYS])
    await days.plan()
    await days.pay_on_session(paid)
    await scene.cancel()
    assert (await days.day(0.5)).open == 0
    assert (await scene.charge(paid)).state is State.SUCCEEDED
    assert (await scene.charge(away)).state is State.NEEDS_CUSTOMER
    assert not [send for send in scene.wire if send.startswith("cancel")]


async def test_i15_a_debit_settles_after_days(scene: Scene, days: Days) -> None:
    """The charging ends with one line pending, in neither count; three days later the bank says yes."""
    (charge_id,) = await days.charge([DEBIT])
    assert (await days.plan()).debits == 1
    assert (await days.report("charging_report"))["counts"] == {"processing": 1}
    settle_debit_after(scene, (await scene.charge(charge_id)).payment_intent, 2.9)
    await days.day(2)
    assert (await scene.charge(charge_id)).state is State.PROCESSING
    assert (await days.day(3)).open == 0
    assert (await scene.charge(charge_id)).state is State.SUCCEEDED
    assert scene.wire == ["create v1", "confirm v1"]
    assert await days.close() == {"succeeded": 1}
    await scene.audit()


async def test_i15_a_debit_that_fails_is_a_decline_like_any_other(scene: Scene, days: Days) -> None:
    """Without any webhook the failure is found by asking; its code decides, and a retry follows."""
    (charge_id,) = await days.charge([FAILING_DEBIT])
    await days.plan()
    assert (await days.day(4)).open == 1
    await days.day(5)
    assert (await scene.charge(charge_id)).state is State.DECLINED
    assert await days.outcomes() == [("debit", "declined"), ("retry", None)]
    assert (await days.due()).next_due_seconds == pytest.approx(3 * DAY)
    days.replace_card((await scene.charge(charge_id)).customer, GOOD_CARD)
    assert (await days.day(8)).open == 0
    assert scene.wire == ["create v1", "confirm v1", "confirm v2"]
    assert await days.close() == {"succeeded": 1}
    await scene.audit()


async def test_i15_a_debit_on_a_closed_account_ends(scene: Scene, days: Days) -> None:
    """A bank account that is no more is not debited a second time."""
    await days.charge(["pm_usBankAccount_accountClosed_x"])
    await days.plan()
    assert (await days.day(4)).open == 0
    assert await days.outcomes() == [("debit", "never_retried")]
    assert await days.close() == {"declined": 1}


async def test_a_debit_that_never_ends_is_left_with_an_alarm(scene: Scene, days: Days) -> None:
    """After 14 days the run closes with one pending line, and people are told."""
    await days.charge(["pm_usBankAccount_processing_x"])
    await days.plan()
    assert (await days.day(13)).open == 1
    assert (await days.day(14)).open == 0
    assert await days.outcomes() == [("debit", "still_processing")]
    assert await scene.alarms() == 1
    assert await days.close() == {"processing": 1}


async def test_retries_through_a_debit_go_on_where_they_were(scene: Scene, days: Days) -> None:
    """A retry that became a debit and failed days later was one of three: the next keeps its distance."""
    (charge_id,) = await days.charge([DECLINING_CARD])
    await days.plan()
    days.replace_card((await scene.charge(charge_id)).customer, "pm_sepaDebit_failed")
    await days.day(3)
    assert (await scene.charge(charge_id)).state is State.PROCESSING
    await days.day(8)
    assert (await days.due()).next_due_seconds == pytest.approx(2 * DAY)
    assert await days.outcomes() == [("retry", "processing"), ("debit", "declined"), ("retry", None)]


async def test_i08_what_was_paid_meanwhile_is_not_retried(scene: Scene, days: Days) -> None:
    """A retry looks before it sends: a PaymentIntent that was paid in the meantime is booked as paid."""
    (charge_id,) = await days.charge([DECLINING_CARD])
    await days.plan()
    await days.pay_on_session(charge_id)
    assert (await days.day(3)).open == 0
    assert [send for send in scene.wire if send == "confirm v2"] == []
    assert (await scene.charge(charge_id)).state is State.SUCCEEDED
    assert len(scene.sim.movements) == 1


async def test_i08_a_reset_behind_a_retry_is_looked_up_three_days_later(scene: Scene, days: Days) -> None:
    """Booked at Stripe, unknown here, keys pruned since: found by the lookup, and nothing is sent."""
    (charge_id,) = await days.charge(["pm_card_declineOnceThenSucceed_x"])
    await days.plan()
    scene.fault("reset", place="after", operation=CONFIRM)
    await scene.set_age(3 * DAY)
    await days.look()
    assert (await scene.charge(charge_id)).state is State.CONFIRMING
    scene.clear_faults()
    sent = len(scene.posts)
    assert (await days.day(6)).open == 0
    assert len(scene.posts) == sent
    assert (await scene.charge(charge_id)).state is State.SUCCEEDED
    assert len(scene.sim.movements) == 1
    await scene.audit()


async def test_i13_a_failure_of_before_does_not_undo_a_success(scene: Scene, days: Days) -> None:
    """What a lookup of before the retry showed is refused by the guards: succeeded stays succeeded."""
    (charge_id,) = await days.charge(["pm_card_declineOnceThenSucceed_x"])
    await days.plan()
    before = await scene.charge(charge_id)
    await days.day(3)
    worker = scene.worker()
    assert (await scene.charge(charge_id)).state is State.SUCCEEDED
    with pytest.raises(Exception, match="is no longer declined"):
        await worker.ledger.settle(
            before,
            State.DECLINED,
            payment_intent=before.payment_intent,
            latest_charge=None,
            reason="late news",
        )
    assert (await scene.charge(charge_id)).state is State.SUCCEEDED


async def test_whatever_moves_the_charge_ends_the_wait(scene: Scene, days: Days) -> None:
    """A webhook or a person's tool may settle it first: it is due at once, and nothing is asked or sent."""
    (charge_id,) = await days.charge([ASKS_ALWAYS])
    await days.plan()
    await days.pay_on_session(charge_id)
    worker, charge = scene.worker(), await scene.charge(charge_id)
    await worker.ledger.settle(
        charge, State.SUCCEEDED, payment_intent=charge.payment_intent, latest_charge=None, reason="an event"
    )
    asked = scene.lookups
    assert (await days.due()).due_now == 1
    assert (await days.day(0.01)).open == 0
    assert scene.lookups == asked


async def test_a_run_that_waits_does_not_hold_its_period(scene: Scene, days: Days) -> None:
    """The period's next run takes the lock beside it; the charge that is waited for stays where it is."""
    (charge_id,) = await days.charge([ASKS_ALWAYS])
    await days.plan()
    other = await RunLedger(scene.pool).lock(
        "billing-run/acct_sim/2031-03/r2",
        account="acct_sim",
        period="2031-03",
        owner="execution-2",
        source="lines.csv",
        source_sha256="0" * 64,
        started_by="tests",
    )
    assert other.run_id.endswith("/r2")
    with pytest.raises(Exception, match="still waits for it"):
        await scene.owner.execute(
            "UPDATE charges SET run_id = $1 WHERE charge_id = $2", other.run_id, charge_id
        )


async def test_stripe_away_puts_a_look_off(scene: Scene, days: Days) -> None:
    """A lookup without an answer is asked again within the hour, and nothing is concluded from it."""
    await days.charge([DEBIT])
    await days.plan()
    scene.sim.set_faults(
        {"name": "away", "place": "before", "match": {"method": "GET"}, "effect": {"kind": "drop"}}
    )
    due = await days.day(1)
    assert due.next_due_seconds == pytest.approx(3_600)
    scene.clear_faults()
    await days.day(1 + 1 / 24)
    assert (await scene.charge()).state is State.PROCESSING
