"""What becomes of events: looked at once per object, applied once, put off, parked, replayed."""

import asyncio
import json

import pytest

from activities import inbox as working
from activities.ledger.inbox import Ending, EventState
from activities.merge import Look, Merger, Subject
from tests.activities.scene import (
    ACCOUNT,
    CONFIRM,
    CREATE,
    DECLINING_CARD,
    GOOD_CARD,
    SLOW_DEBIT,
    Scene,
    fault,
)
from tests.web.mailroom import Mailroom, changed
from workflows.domain.keys import IdempotencyKey
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS

DAY_SECONDS = 86_400.0


async def lose_the_confirm(scene: Scene, *cards: str) -> None:
    """Plan a charge per card and leave each in `confirming`, executed at Stripe, its answer lost."""
    worker = scene.worker()
    await scene.plan(cards or (GOOD_CARD,))
    for charge in await worker.claim():
        sent = await worker.sender.send_first(charge, CREATE, reason="planned")
        await worker.transmit(await worker.intend(sent.charge, CONFIRM))


async def test_an_event_settles_a_charge_whose_answer_was_lost(scene: Scene, mail: Mailroom) -> None:
    """The worker is gone, Stripe has charged: the nudge leads to a look, and the look to the truth."""
    await lose_the_confirm(scene)
    await mail.deliver(*mail.bodies())
    assert await mail.work() == 1
    charge = await scene.charge()
    assert charge.state is State.SUCCEEDED
    assert ("settled_by_webhook", False) in await scene.decisions()
    assert await mail.states() == {"done": 2, "ignored": 1}
    await scene.audit()


async def test_all_events_of_one_payment_are_answered_by_one_look(scene: Scene, mail: Mailroom) -> None:
    """Coalesced per object: five events of a debit, two of them again, cost one request."""
    await lose_the_confirm(scene, SLOW_DEBIT)
    await scene.set_age(5 * DAY_SECONDS)
    assert scene.sim.movements
    bodies = mail.bodies()
    assert len(bodies) == 5
    before = scene.lookups
    assert await mail.deliver(*bodies, bodies[1], bodies[4]) == [True] * 5 + [False] * 2
    assert await mail.work() == 1
    assert scene.lookups - before == 2  # whose key it is was asked first
    assert (await scene.charge()).state is State.SUCCEEDED


async def test_what_the_ledger_has_costs_no_request(scene: Scene, mail: Mailroom) -> None:
    """The usual case: the answer came, and its events bring nothing that anybody would have to ask for."""
    await scene.plan([GOOD_CARD, SLOW_DEBIT])
    await scene.work()
    before = scene.lookups
    await mail.deliver(*mail.bodies())
    assert await mail.work() == 0
    assert scene.lookups == before
    assert await mail.states() == {"done": 4, "ignored": 2}


async def test_a_charge_in_flight_is_left_to_its_sender_first(scene: Scene, mail: Mailroom) -> None:
    """Its own answer may be on its way; some seconds later it is looked at."""
    await lose_the_confirm(scene)
    worker = mail.worker(in_flight_seconds=5.0)
    await mail.deliver(*mail.bodies())
    assert await mail.work(worker) == 0
    assert (await mail.states())["waiting"] == 2
    await scene.set_age(6)
    assert await mail.work(worker) == 1
    assert (await scene.charge()).state is State.SUCCEEDED


async def test_a_confirm_in_flight_is_not_taken_for_declined(scene: Scene, mail: Mailroom) -> None:
    """I14, trace T9: the first confirm's decline, seen while the second is outstanding, decides nothing."""
    worker = scene.worker()
    first = await worker.intend(await scene.prepare(worker, card="pm_card_declineOnceThenSucceed"), CONFIRM)
    await worker.record(first, await worker.transmit(first))
    declined = await scene.charge()
    assert declined.state is State.DECLINED
    await scene.set_age(WINDOW_SECONDS)
    second = await worker.intend(declined, CONFIRM)
    await mail.deliver(*mail.bodies())
    assert await mail.work() == 1
    assert (await scene.charge()).state is State.CONFIRMING
    await worker.transmit(second)
    await mail.take_in(*mail.bodies()[3:])
    assert (await scene.charge()).state is State.SUCCEEDED
    await scene.audit()


@pytest.mark.parametrize(
    ("card", "state"),
    [(SLOW_DEBIT, State.SUCCEEDED), ("pm_usBankAccount_insufficientFunds_1", State.DECLINED)],
)
async def test_a_debit_ends_days_later(scene: Scene, mail: Mailroom, card: str, state: State) -> None:
    """Incident I15: `processing` becomes terminal by the event that Stripe sends in the end."""
    await scene.plan([card])
    await scene.work()
    assert (await scene.charge()).state is State.PROCESSING
    await scene.set_age(5 * DAY_SECONDS)
    assert len(scene.sim.movements) == (state is State.SUCCEEDED)
    await mail.deliver(*mail.bodies())
    await mail.work()
    assert (await scene.charge()).state is state
    await scene.audit()


async def test_an_event_before_its_row_waits_and_is_matched_later(scene: Scene, mail: Mailroom) -> None:
    """A ledger that was restored to an earlier moment does not know the charge yet: nothing is lost."""
    await scene.plan([GOOD_CARD])
    await scene.work()
    bodies = mail.bodies()
    async with scene.owner.transaction():
        await scene.owner.execute("CREATE TEMPORARY TABLE kept AS SELECT * FROM charges")
        for table in ("decisions", "attempts", "keys", "charges"):
            await scene.owner.execute(f"DELETE FROM {table}")
    try:
        await mail.deliver(*bodies)
        await mail.work()
        assert (await mail.states())["unmatched"] == 2
        await scene.owner.execute(
            "INSERT INTO charges SELECT (jsonb_populate_record(k, jsonb_build_object("
            "'state', 'creating', 'payment_intent', NULL, 'latest_charge', NULL))).* FROM kept k"
        )
    finally:
        await scene.owner.execute("DROP TABLE kept")
    assert await mail.work() == 0  # not yet due again
    await scene.set_age(61)
    assert await mail.work() == 1
    assert (await scene.charge()).state is State.SUCCEEDED
    assert await mail.states() == {"done": 2, "ignored": 1}


async def test_strangers_are_ignored_without_a_request(scene: Scene, mail: Mailroom) -> None:
    """The shop's own payments carry no identity of ours, and customers are not charges."""
    await lose_the_confirm(scene)
    paid = mail.bodies()[-1]
    shop = {"object": "payment_intent", "id": "pi_of_the_shop", "metadata": {}}
    await mail.deliver(
        changed(paid, id="evt_shop", data={"object": shop}),
        changed(paid, id="evt_customer", type="customer.updated", data={"object": {"object": "customer"}}),
        changed(
            paid, id="evt_old", type="charge.succeeded", data={"object": {"object": "charge", "id": "ch_1"}}
        ),
    )
    assert await mail.work() == 0
    assert await mail.states() == {"ignored": 3}


async def test_an_identity_that_only_the_event_claims_changes_nothing(scene: Scene, mail: Mailroom) -> None:
    """What an event says is a hint: whose payment it is, the object at Stripe says."""
    await scene.plan([GOOD_CARD, DECLINING_CARD])
    await scene.work()
    paid, declined = [
        row["charge_id"]
        for row in await scene.pool.fetch("SELECT charge_id FROM charges ORDER BY state DESC")
    ]
    body = next(one for one in mail.bodies() if b"payment_intent.succeeded" in one)
    await mail.deliver(body.replace(paid.encode(), declined.encode()))
    assert await mail.work() == 1
    assert (await scene.charge(declined)).state is State.DECLINED
    assert (await scene.charge(paid)).state is State.SUCCEEDED


async def test_an_object_that_stripe_does_not_show_is_parked_and_can_be_replayed(
    scene: Scene, mail: Mailroom
) -> None:
    """Poison is tried a few times, then kept with its reason until somebody lets it be tried again."""
    await lose_the_confirm(scene)
    body = mail.bodies()[-1]
    identity = (await scene.charge()).charge_id
    forged = changed(
        body,
        id="evt_forged",
        data={
            "object": {
                "object": "payment_intent",
                "id": "pi_none",
                "metadata": {"chargeonce_charge": identity},
            }
        },
    )
    await mail.deliver(forged)
    for number in range(1, working.TRIES_BEFORE_PARKING + 1):
        assert await mail.work() == 1
        await scene.set_age(number * 3_600)
    assert await mail.states() == {"parked": 1}
    [reason] = await mail.reasons(EventState.PARKED)
    assert "HTTP 404" in reason
    assert await mail.inbox.replay(["evt_forged"]) == ["evt_forged"]
    assert await mail.work() == 1
    assert await mail.states() == {"waiting": 1}


async def test_an_event_that_names_nothing_is_parked_at_once(scene: Scene, mail: Mailroom) -> None:
    """A PaymentIntent without a readable id can't be looked at, however often."""
    await lose_the_confirm(scene)
    await mail.deliver(
        changed(mail.bodies()[-1], data={"object": {"object": "payment_intent", "id": "../x"}})
    )
    assert await mail.work() == 0
    assert await mail.reasons(EventState.PARKED) == ["a PaymentIntent without a readable id"]


async def test_poison_of_one_charge_does_not_hold_up_another(
    scene: Scene, mail: Mailroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever an event makes our own code raise, the others of its batch are worked through."""
    await lose_the_confirm(scene, GOOD_CARD, GOOD_CARD)
    poisoned = await scene.pool.fetchval("SELECT min(payment_intent) FROM charges")
    look = Merger.look

    async def look_or_raise(merger: Merger, subject: Subject) -> Look:
        if subject.payment_intent == poisoned:
            raise ValueError("a bug")
        return await look(merger, subject)

    monkeypatch.setattr(Merger, "look", look_or_raise)
    await mail.deliver(*mail.bodies())
    await mail.work()
    assert await mail.states() == {"done": 2, "ignored": 2, "waiting": 2}
    assert await mail.reasons(EventState.WAITING) == ["ValueError: a bug"] * 2


async def test_stripe_being_away_parks_nothing(scene: Scene, mail: Mailroom) -> None:
    """What Stripe does not answer is asked again, later and later, for as long as it takes."""
    await lose_the_confirm(scene)
    await mail.deliver(*mail.bodies())
    await mail.accounts.choose(None)  # whose key it is has been asked before Stripe went away
    scene.sim.set_faults(fault("error", status=500, match={"method": "GET"}))
    for number in range(1, 12):
        assert await mail.work() == 1
        await scene.set_age(number * 700)
    assert (await mail.states())["waiting"] == 2
    scene.clear_faults()
    assert await mail.work() == 1
    assert (await scene.charge()).state is State.SUCCEEDED


async def test_two_workers_take_different_events(scene: Scene, mail: Mailroom) -> None:
    """What one has leased the other does not see; nothing is looked at by both."""
    await lose_the_confirm(scene, *[GOOD_CARD] * 20)
    await mail.deliver(*mail.bodies())
    first, second = mail.worker(), mail.worker()
    done = await asyncio.gather(first.work(limit=20), second.work(limit=20))
    assert sum(one.looks for one in done) <= 20
    assert sum(one.looks for one in done) + await mail.work() == 20
    assert {row["state"] for row in await scene.pool.fetch("SELECT state FROM charges")} == {"succeeded"}
    settled = [one for one in await scene.decisions() if one[0] == "settled_by_webhook"]
    assert len(settled) == 20
    await scene.audit()


async def test_a_lease_that_nobody_ends_runs_out(scene: Scene, mail: Mailroom) -> None:
    """Whoever dies keeps nothing: the events are taken again, and end once."""
    await lose_the_confirm(scene)
    await mail.deliver(*mail.bodies())
    lost = await mail.inbox.claim(limit=10, lease_seconds=0.0)
    assert len(lost) == 3
    assert await mail.work() == 1
    await mail.inbox.end(Ending(tuple(lost), EventState.PARKED, "from a worker that was taken for dead"))
    assert await mail.states() == {"done": 2, "ignored": 1}


async def test_a_pass_that_broke_gives_its_leases_back(
    scene: Scene, mail: Mailroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the database comes back, the same process takes the same events without waiting for the lease."""
    await lose_the_confirm(scene)
    await mail.deliver(*mail.bodies())
    worker = mail.worker()

    async def break_down(*_arguments: object) -> None:
        raise ConnectionResetError

    with monkeypatch.context() as broken:
        broken.setattr(worker.inbox, "end", break_down)
        with pytest.raises(ExceptionGroup):
            await worker.work()
    assert (await mail.states()) == {"waiting": 3}
    assert (await worker.work()).events == 3
    assert (await scene.charge()).state is State.SUCCEEDED


async def test_a_second_payment_raises_one_alarm(scene: Scene, mail: Mailroom) -> None:
    """A paid PaymentIntent of the same identity beside the row's own is a duplicate, told once."""
    await scene.plan([GOOD_CARD])
    await scene.work()
    charge = await scene.charge()
    body = json.loads(await scene.pool.fetchval("SELECT parameters FROM keys WHERE operation = 'create'"))
    answer = await scene.worker().gateway.post(
        CREATE,
        account=ACCOUNT,
        path="/v1/payment_intents",
        parameters={**body, "confirm": True, "off_session": True},
        key=IdempotencyKey("create_by_hand"),
    )
    assert answer.succeeded
    assert len(scene.sim.movements) == 2
    await mail.deliver(*mail.bodies())
    await mail.work()
    events = await mail.inbox.newest(states=list(EventState), limit=50)
    await mail.inbox.replay([one["event_id"] for one in events])
    await mail.work()
    assert [one for one in await scene.decisions() if one[0] == "duplicate"] == [("duplicate", True)]
    assert (await scene.charge()).payment_intent == charge.payment_intent
