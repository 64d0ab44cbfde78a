"""Declines over days: which are tried again, when, with what, and how that ends. Also incident I07."""

import json
from collections.abc import AsyncIterator

import pytest
from temporalio.testing import ActivityEnvironment

from activities.follow_ups import begin_to_wait
from activities.ledger.follow_ups import FollowUpLedger
from activities.reopen import UNANSWERED_SECONDS
from activities.vault import CHARGING, READING
from tests.activities.days import DAY, RUN, Days, open_days
from tests.activities.scene import ACCOUNT, CONFIRM, DECLINING_CARD, GOOD_CARD, RUN_ID, SLOW_DEBIT, Scene
from workflows.contracts import HoldKind, Settling
from workflows.domain.follow_up import Wait
from workflows.domain.retry_policy import DEFAULT_POLICY, Method, RetryPolicy, RetryRule
from workflows.domain.states import State

BROKE = "pm_card_declineOnceThenSucceed_broke"


@pytest.fixture
async def days(scene: Scene) -> AsyncIterator[Days]:
    """A run over days."""
    async with open_days(scene) as opened:
        yield opened


async def test_declines_are_tried_again_on_days_3_5_and_7(scene: Scene, days: Days) -> None:
    """Each retry is the next version on the same PaymentIntent; a card that is replaced in between pays."""
    kept, replaced, paid = await days.charge([DECLINING_CARD, DECLINING_CARD, GOOD_CARD])
    planned = await days.plan()
    assert (planned.retries, planned.open, await days.phase()) == (2, 2, "retrying")
    first = [(await scene.charge(one)).payment_intent for one in (kept, replaced)]
    assert (await days.due()).next_due_seconds == pytest.approx(3 * DAY)

    await days.day(3)
    assert [(await scene.charge(one)).confirm_version for one in (kept, replaced)] == [2, 2]
    assert (await days.due()).next_due_seconds == pytest.approx(2 * DAY)
    new_card = days.replace_card((await scene.charge(replaced)).customer, GOOD_CARD)
    await days.day(5)
    assert (await scene.charge(replaced)).state is State.SUCCEEDED
    assert (await scene.charge(kept)).confirm_version == 3
    assert (await days.day(7)).open == 0

    assert [(await scene.charge(one)).payment_intent for one in (kept, replaced)] == first
    assert (await scene.charge(kept)).confirm_version == 4
    assert (await scene.charge(paid)).confirm_version == 1
    assert sorted(await days.outcomes()) == [("retry", "retries_used_up"), ("retry", "succeeded")]
    frozen = await scene.pool.fetchval(
        "SELECT parameters FROM keys WHERE charge_id = $1 AND operation = 'confirm' AND version = 3", replaced
    )
    assert json.loads(frozen)["payment_method"] == new_card
    assert await days.close() == {"declined": 1, "succeeded": 2}
    await scene.audit()


async def test_every_retry_has_its_decision_in_the_journal(scene: Scene, days: Days) -> None:
    """Why, by which rule, with which payment method, how old the key before was, and by what lookup."""
    (charge_id,) = await days.charge([DECLINING_CARD])
    await days.plan()
    await days.day(3)
    rows = await scene.pool.fetch(
        "SELECT decision, reason, evidence FROM decisions WHERE charge_id = $1 ORDER BY decision_id",
        charge_id,
    )
    assert [row["decision"] for row in rows] == ["retry_planned", "retried", "retry_planned"]
    assert "retry 1 of 3, 3 days after the first decline (rule 'otherwise')" in rows[0]["reason"]
    assert "retry 1 after generic_decline" in rows[1]["reason"]
    assert "payment method that the customer still has" in rows[1]["reason"]
    evidence = rows[1]["evidence"]
    assert (evidence["operation"], evidence["version"], evidence["age_seconds"]) == ("confirm", 2, 3 * DAY)
    assert len(evidence["requests"]) == 1


async def test_i07_a_decline_is_not_asked_about_again_before_its_time(scene: Scene, days: Days) -> None:
    """Funded at six, nothing is sent at half past; on day 3 version 2 pays: two attempts, one charge."""
    (charge_id,) = await days.charge([BROKE])
    await days.plan()
    assert scene.wire == ["create v1", "confirm v1"]
    for hours in (6.5, 23, 25, 71):
        await days.day(hours / 24)
        assert scene.wire == ["create v1", "confirm v1"]
    assert (await days.day(3)).open == 0
    assert scene.wire == ["create v1", "confirm v1", "confirm v2"]
    assert (await scene.charge(charge_id)).state is State.SUCCEEDED
    assert sorted(send for send, _, _ in await scene.sends()) == ["confirm v1", "confirm v2", "create v1"]
    assert len(scene.sim.movements) == 1
    await scene.audit()


@pytest.mark.parametrize(
    "card",
    ["chargeDeclinedStolenCard", "chargeDeclinedLostCard", "chargeDeclinedFraudulent", "radarBlock"],
)
async def test_a_hard_decline_ends(scene: Scene, days: Days, card: str) -> None:
    """Nothing is waited for, so the run closes at once, and the journal says why."""
    await days.charge([f"pm_card_{card}_x"])
    assert (await days.plan()).open == 0
    assert await days.phase() == "settling"
    assert await days.close() == {"declined": 1}
    assert [decision for decision, _ in await scene.decisions()] == ["not_retried"]


async def test_advice_outranks_the_code(scene: Scene, days: Days) -> None:
    """An issuer that says do not try again is believed, whatever code it comes with."""
    await days.charge([DECLINING_CARD])
    await scene.owner.execute("UPDATE attempts SET advice_code = 'do_not_try_again' WHERE proof = 'proved'")
    assert (await days.plan()).open == 0


async def test_an_outdated_card_waits_for_another_one(scene: Scene, days: Days) -> None:
    """The same expired card is never sent again; once the customer has replaced it, the new one is."""
    (charge_id,) = await days.charge(["pm_card_chargeDeclinedExpiredCard_x"])
    await days.plan()
    await days.day(3)
    assert scene.wire == ["create v1", "confirm v1"]
    days.replace_card((await scene.charge(charge_id)).customer, GOOD_CARD)
    assert (await days.day(5)).open == 0
    assert (await scene.charge(charge_id)).state is State.SUCCEEDED
    assert scene.wire == ["create v1", "confirm v1", "confirm v2"]
    await scene.audit()


async def test_the_same_payment_method_is_used_where_the_policy_says_so(scene: Scene, days: Days) -> None:
    """A policy may leave out the customer's new default."""
    policy = RetryPolicy(otherwise=RetryRule("otherwise", (2,), Method.SAME))
    (charge_id,) = await days.charge([DECLINING_CARD], policy=policy)
    await days.plan()
    days.replace_card((await scene.charge(charge_id)).customer, GOOD_CARD)
    assert (await days.day(2)).open == 0
    assert (await scene.charge(charge_id)).state is State.DECLINED
    assert await days.outcomes() == [("retry", "retries_used_up")]


async def test_how_a_customer_pays_is_asked_by_a_key_that_only_reads(scene: Scene, days: Days) -> None:
    """Behind the spend-cap proxy a key that charges does not list payment methods."""
    await days.charge([DECLINING_CARD])
    await days.plan()
    days.uses.clear()
    await days.day(3)
    assert days.uses == ["charging", "reading"]
    assert "GET /v1/customers/{id}/payment_methods" in READING.allow
    assert "GET /v1/customers/{id}/payment_methods" not in CHARGING.allow
    assert scene.wire[-1] == "confirm v2"


async def test_a_deleted_customer_is_passed_over(scene: Scene, days: Days) -> None:
    """Nobody can pay, so nothing is sent, and the retries run out."""
    (charge_id,) = await days.charge([DECLINING_CARD])
    await days.plan()
    account = scene.sim.simulator.account(ACCOUNT.id)
    account.customers.by_id[(await scene.charge(charge_id)).customer].deleted = True
    for day in (3, 5, 7):
        due = await days.day(day)
    assert due.open == 0
    assert scene.wire == ["create v1", "confirm v1"]
    assert await days.outcomes() == [("retry", "retries_used_up")]


async def test_a_card_that_is_gone_is_passed_over(scene: Scene, days: Days) -> None:
    """A detached card would be refused, which ends a charge; what is added later pays."""
    (charge_id,) = await days.charge([DECLINING_CARD])
    await days.plan()
    days.detach_card(f"{DECLINING_CARD}_1")
    assert (await days.day(3)).open == 1
    assert scene.wire == ["create v1", "confirm v1"]
    assert "no_payment_method" in await scene.pool.fetchval("SELECT reason FROM follow_ups")
    days.replace_card((await scene.charge(charge_id)).customer, GOOD_CARD)
    assert (await days.day(5)).open == 0
    assert (await scene.charge(charge_id)).state is State.SUCCEEDED
    assert scene.wire[2:] == ["confirm v2"]
    await scene.audit()


@pytest.mark.parametrize("is_attached", [True, False])
async def test_of_several_cards_the_one_before_is_used_while_it_is_there(
    scene: Scene, days: Days, *, is_attached: bool
) -> None:
    """A choice between cards is not ours to make, so only the one that was planned is tried again."""
    (charge_id,) = await days.charge([DECLINING_CARD])
    await days.plan()
    customer = (await scene.charge(charge_id)).customer
    scene.sim.seed(customer, f"{GOOD_CARD}_second", f"{GOOD_CARD}_third")
    if not is_attached:
        days.detach_card(f"{DECLINING_CARD}_1")
    assert (await days.day(3)).open == 1
    assert scene.wire[2:] == (["confirm v2"] if is_attached else [])


async def test_the_same_card_is_passed_over_where_it_is_gone(scene: Scene, days: Days) -> None:
    """A policy that names the card that was declined does not send one that can only be refused."""
    policy = RetryPolicy(otherwise=RetryRule("otherwise", (2,), Method.SAME))
    (charge_id,) = await days.charge([DECLINING_CARD], policy=policy)
    await days.plan()
    days.detach_card(f"{DECLINING_CARD}_1")
    assert (await days.day(2)).open == 0
    assert (await scene.charge(charge_id)).state is State.DECLINED
    assert scene.wire == ["create v1", "confirm v1"]


@pytest.mark.parametrize("path", ["^/v1/customers/", "^/v1/payment_intents/"])
@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_hold_a_run_of_retries(
    scene: Scene, days: Days, path: str, status: int
) -> None:
    """Whichever question they are refused for, the run says why, and the retry keeps its time."""
    await days.charge([DECLINING_CARD])
    await days.plan()
    await scene.set_age(3 * DAY)
    scene.fault("error", status=status, match={"method": "GET", "path": path})
    done = await days.look()
    assert (done.halted_kind, done.closes_by_itself, done.held) == (HoldKind.BREAKER, False, 1)
    assert f"HTTP {status}" in (done.halted or "")
    scene.clear_faults()
    assert (await days.due()).due_now == 1
    await days.day(3)
    assert scene.wire[2:] == ["confirm v2"]


@pytest.mark.parametrize("card", ["pm_card_authenticationRequired_x", SLOW_DEBIT])
async def test_refused_credentials_hold_a_run_that_waits(scene: Scene, days: Days, card: str) -> None:
    """A customer or a bank that can not be asked about is no outage of Stripe: a person has to know."""
    await days.charge([card])
    await days.plan()
    await scene.set_age(DAY)
    scene.fault("error", status=401, match={"method": "GET"})
    done = await days.look()
    assert (done.halted_kind, done.deferred) == (HoldKind.BREAKER, 0)
    assert "HTTP 401" in (done.halted or "")


async def test_what_is_in_flight_holds_it_as_well(scene: Scene, days: Days) -> None:
    """A retry without an answer whose lookup is refused is not asked about for ever without a word."""
    await days.charge([DECLINING_CARD])
    await days.plan()
    scene.fault("drop", place="after", operation=CONFIRM)
    await days.day(3)
    scene.fault("error", status=401, match={"method": "GET"})
    await scene.set_age(4.5 * DAY)
    progress = await ActivityEnvironment().run(days.charges.settle_due, Settling(**dict(RUN)))
    assert progress.halted_kind is HoldKind.BREAKER


async def test_an_outage_is_not_asked_about_every_moment(scene: Scene, days: Days) -> None:
    """A retry whose lookup has no answer is put off for an hour, and says what it waits for."""
    await days.charge([DECLINING_CARD])
    await days.plan()
    scene.fault("error", status=500, match={"method": "GET", "path": "^/v1/payment_intents/"})
    due = await days.day(3)
    assert due.next_due_seconds == pytest.approx(UNANSWERED_SECONDS)
    assert "no complete lookup" in await scene.pool.fetchval("SELECT reason FROM follow_ups")


async def test_a_retry_whose_answer_is_lost_is_settled_first(scene: Scene, days: Days) -> None:
    """A retry that nobody heard of again counts as sent: it is looked up, and the next one keeps its day."""
    (charge_id,) = await days.charge([DECLINING_CARD])
    await days.plan()
    scene.fault("drop", place="after", operation=CONFIRM, times=1)
    await days.day(3)
    scene.clear_faults()
    await days.day(3 + 1 / 24)
    charge = await scene.charge(charge_id)
    assert (charge.state, charge.confirm_version) == (State.DECLINED, 2)
    assert (await days.due()).next_due_seconds == pytest.approx(2 * DAY - 3_600)
    await days.day(5)
    assert (await scene.charge(charge_id)).confirm_version == 3
    await scene.audit()


async def test_a_worker_that_dies_behind_a_retry_does_not_repeat_it(scene: Scene, days: Days) -> None:
    """Which retries were made is told by the charge's versions, so a lost booking loses nothing."""
    await days.charge([DECLINING_CARD])
    await days.plan()
    await scene.set_age(3 * DAY)
    (before,) = await scene.owner.fetch("SELECT step, confirm_version, due_at FROM follow_ups")
    await days.look()
    await scene.owner.execute(
        "UPDATE follow_ups SET step = $1, confirm_version = $2, due_at = $3", *before.values()
    )
    await days.day(3)
    assert scene.wire == ["create v1", "confirm v1", "confirm v2"]
    assert (await days.due()).next_due_seconds == pytest.approx(2 * DAY)


async def test_a_held_run_sends_no_retry(scene: Scene, days: Days) -> None:
    """A pause over the day of a retry keeps it until the run goes on; the next one keeps a day's distance."""
    await days.charge([DECLINING_CARD])
    await days.plan()
    assert (await scene.pause()).changed
    assert (await days.day(4.5)).due_now == 0
    assert scene.wire == ["create v1", "confirm v1"]
    await scene.resume()
    due = await days.day(4.6)
    assert scene.wire[-1] == "confirm v2"
    assert due.next_due_seconds == pytest.approx(DAY)


async def test_a_canceled_run_waits_for_nothing(scene: Scene, days: Days) -> None:
    """Declined stays declined, no PaymentIntent is canceled, and the run closes."""
    await days.charge([DECLINING_CARD])
    await days.plan()
    await scene.cancel()
    assert (await days.day(1)).open == 0
    assert await days.close() == {"declined": 1}
    assert scene.wire == ["create v1", "confirm v1"]
    assert await days.outcomes() == [("retry", "run_canceled")]


async def test_t10_nothing_is_declined_for_good_while_a_confirm_may_still_pay(
    scene: Scene, days: Days
) -> None:
    """A send that nobody heard of again may land late, so the PaymentIntent is canceled before giving up."""
    slow = scene.worker()
    frozen = await slow.intend(await scene.prepare(slow, card="pm_card_chargeDeclinedStolenCard_x"), CONFIRM)
    await scene.work()
    assert (await scene.charge()).state is State.DECLINED
    assert (await days.plan()).retries == 1
    assert (await days.day(0)).open == 0
    assert scene.wire == ["create v1", "confirm v1", "cancel v1"]
    answer = await slow.transmit(frozen)
    assert answer.replayed or answer.payment_intent is not None
    assert await days.close() == {"canceled": 1}
    await scene.audit()


async def test_the_report_of_the_charging_says_what_is_waited_for(scene: Scene, days: Days) -> None:
    """People are told how the charging ended while the retries go on, with counts that add up."""
    await days.charge([GOOD_CARD, DECLINING_CARD, "pm_card_authenticationRequired_x"])
    await days.plan()
    report = await days.report("charging_report")
    assert report["counts"] == {"succeeded": 1, "declined": 1, "needs_customer": 1}
    assert {kind: waits["lines"] for kind, waits in report["waiting"].items()} == {"customer": 1, "retry": 1}
    actions = [
        row["action"] for row in await scene.pool.fetch("SELECT action FROM run_events ORDER BY event_id")
    ]
    assert actions[-2:] == ["customer_needed", "charging_closed"]
    assert (await days.plan()).open == 2
    assert len(await days.outcomes()) == 2


async def test_a_customer_who_walks_away_in_the_middle_does_not_keep_the_run(
    scene: Scene, days: Days
) -> None:
    """Somebody began to pay a declined PaymentIntent on session: each retry is passed over, and that ends."""
    (charge_id,) = await days.charge([DECLINING_CARD])
    await days.plan()
    await days.pay_on_session(charge_id, "pm_card_threeDSecure2Required")
    for day in (3, 5):
        assert (await days.day(day)).open == 1
    assert (await days.day(7)).open == 0
    assert scene.wire.count("confirm v2") == 0
    assert await days.outcomes() == [("retry", "retries_used_up")]


async def test_a_planner_that_thaws_after_the_close_waits_for_nothing(scene: Scene, days: Days) -> None:
    """It read the charges, froze, and comes back to a run that was canceled and closed meanwhile."""
    await days.charge([DECLINING_CARD])
    ledger = FollowUpLedger(scene.pool)
    [one] = await ledger.candidates(RUN_ID, 0)
    wait = begin_to_wait(DEFAULT_POLICY, one)
    assert isinstance(wait, Wait)
    await days.plan()
    await scene.cancel()
    assert (await days.day(0.1)).open == 0
    await days.close()
    assert await ledger.open(RUN_ID, [(one.charge, wait)]) == 0
    assert (await days.due()).open == 0
