"""Events that Stripe made and the inbox never had, found in Stripe's own list."""

import json
import random
from collections.abc import Sequence

import pytest

from activities import stripe_pages
from activities.gateway import events
from activities.ledger.inbox import EventState
from activities.missed_events import (
    KEPT_SECONDS,
    ON_ITS_WAY_SECONDS,
    TYPES,
    MissedEvents,
    find_missed,
    keep_missed,
)
from activities.stripe_pages import Unreadable
from tests.activities.dashboard import post
from tests.activities.scene import ACCOUNT, DECLINING_CARD, GOOD_CARD, RUN_ID, START, Scene, fault
from tests.reconcile.orphans import parts_of
from tests.web.mailroom import Mailroom
from workflows.domain.merge import About, about
from workflows.domain.webhook_event import read_event

LATER_SECONDS = 3_600.0

FEW = 10


async def charge_some(scene: Scene, cards: Sequence[str]) -> None:
    """Charge a customer per card, and let time pass until nothing is on its way any more."""
    await scene.plan(cards)
    if len(cards) > FEW:
        await scene.worker().work_at_once()
    else:
        await scene.work()  # one after the other, so that the order of events is known
    await scene.set_age(LATER_SECONDS)


async def look(mail: Mailroom, *, since: float = 0.0, run_id: str | None = None) -> MissedEvents:
    """Look for what was missed, from so long after the start until now."""
    now = (await mail.scene.now()).timestamp()
    return await find_missed(
        mail.scene.pool,
        await parts_of(mail.accounts),
        since_epoch_seconds=START + since,
        until_epoch_seconds=now,
        run_id=run_id,
    )


def ids_of(bodies: Sequence[bytes]) -> set[str]:
    """Return the ids of the events among these that are looked for."""
    return {event["id"] for event in map(json.loads, bodies) if event["type"] in TYPES}


async def test_every_type_that_is_looked_for_says_something_about_a_charge() -> None:
    """And one question can name them all."""
    assert len(set(TYPES)) == len(TYPES) <= events.TYPES_MAX
    assert About.NOTHING not in {about(name) for name in TYPES}


@pytest.mark.parametrize("seed", range(3))
async def test_of_a_third_that_was_lost_exactly_that_third_is_found_and_none_twice(
    mail: Mailroom, seed: int
) -> None:
    """120 charges, more than one page of events; what was delivered is no gap, what was lost is, once."""
    scene, dice = mail.scene, random.Random(seed)
    await charge_some(scene, [GOOD_CARD] * 90 + [DECLINING_CARD] * 30)
    bodies = mail.bodies()
    lost = set(dice.sample(range(len(bodies)), len(bodies) // 3))
    await mail.deliver(*(body for number, body in enumerate(bodies) if number not in lost))
    found = await look(mail)
    wanted = ids_of([bodies[number] for number in lost])
    assert len(wanted) > 50
    assert sorted(one.event_id for one in found.missed) == sorted(wanted)
    assert found.requests == 3
    assert found.unheard == {}
    assert {found.charge_ids[one.event_id] for one in found.missed} == {one.charge_id for one in found.missed}
    for one in found.missed:
        assert await keep_missed(scene.pool, ACCOUNT.id, one)
        assert not await keep_missed(scene.pool, ACCOUNT.id, one)
    assert (await look(mail)).missed == ()
    await mail.work()
    assert EventState.WAITING not in await mail.states()


async def test_where_nothing_was_ever_received_nothing_is_looked_for(mail: Mailroom) -> None:
    """The account has no receiver: every event would be a gap, and none of them is one."""
    await charge_some(mail.scene, [GOOD_CARD])
    found = await look(mail)
    assert (found.missed, found.requests, found.ever_received) == ((), 0, False)


async def test_what_may_still_be_delivered_is_no_gap_yet(mail: Mailroom) -> None:
    """Ten minutes by the ledger's clock, to the second."""
    scene = mail.scene
    await scene.plan([GOOD_CARD, GOOD_CARD])
    await scene.work()
    await mail.deliver(mail.bodies()[1], mail.bodies()[2])
    await scene.set_age(ON_ITS_WAY_SECONDS - 1)
    assert (await look(mail)).missed == ()
    await scene.set_age(ON_ITS_WAY_SECONDS)
    assert {one.event_id for one in (await look(mail)).missed} == ids_of(mail.bodies()[3:])


async def test_a_missed_event_says_how_long_stripe_still_shows_it(mail: Mailroom) -> None:
    """30 days after it was made it is gone from the list, and what came before can't be looked for."""
    scene = mail.scene
    await charge_some(scene, [GOOD_CARD, GOOD_CARD])
    await mail.deliver(*mail.bodies()[:3])
    found = await look(mail)
    assert {found.seconds_left(one) for one in found.missed} == {KEPT_SECONDS - LATER_SECONDS}
    assert not found.beyond_reach
    await scene.set_age(KEPT_SECONDS)
    found = await look(mail)
    assert {found.seconds_left(one) for one in found.missed} == {0.0}
    await scene.set_age(KEPT_SECONDS + 1)
    found = await look(mail)
    assert (found.missed, found.beyond_reach) == ((), True)


async def test_a_type_that_was_never_received_is_told_apart_from_a_gap(mail: Mailroom) -> None:
    """An endpoint that does not subscribe to `charge.succeeded` misses none: those are only counted."""
    await charge_some(mail.scene, [GOOD_CARD] * 3)
    paid = [body for body in mail.bodies() if b'"payment_intent.succeeded"' in body]
    await mail.deliver(paid[0])
    found = await look(mail)
    assert {one.event_id for one in found.missed} == ids_of(paid[1:])
    assert found.unheard == {"charge.succeeded": 3}


async def test_a_lost_refund_is_found_by_its_payment_intent(mail: Mailroom) -> None:
    """A refund carries no identity of ours: the ledger knows whose PaymentIntent it is about."""
    scene = mail.scene
    await charge_some(scene, [GOOD_CARD] * 2)
    for row in await scene.pool.fetch("SELECT payment_intent FROM charges ORDER BY charge_id"):
        await post(scene.sim.url, "/v1/refunds", payment_intent=row["payment_intent"])
    await scene.set_age(2 * LATER_SECONDS)
    bodies = mail.bodies()
    refunds = [body for body in bodies if json.loads(body)["type"] == "refund.created"]
    lost = refunds[1]
    await mail.deliver(*(body for body in bodies if body is not lost))
    found = await look(mail)
    [missed] = found.missed
    assert (missed.event_id, missed.charge_id) == (json.loads(lost)["id"], None)
    whose = await scene.pool.fetchval(
        "SELECT charge_id FROM charges WHERE payment_intent = $1", missed.payment_intent
    )
    assert found.charge_ids == {missed.event_id: whose}


async def test_other_business_of_the_account_and_other_runs_are_no_gaps(mail: Mailroom) -> None:
    """Only what is about charges of the ledger is looked for, and of one run if one is named."""
    scene = mail.scene
    await charge_some(scene, [GOOD_CARD] * 2)
    bodies = mail.bodies()
    await mail.deliver(*bodies[:3])
    await post(
        scene.sim.url,
        "/v1/payment_intents",
        amount=100,
        currency="usd",
        customer="cus_1",
        payment_method=f"{GOOD_CARD}_1",
        confirm="true",
        off_session="true",
        **{"metadata[order]": "7"},
    )
    await scene.set_age(2 * LATER_SECONDS)
    assert {one.event_id for one in (await look(mail)).missed} == ids_of(bodies[3:])
    assert len((await look(mail, run_id=RUN_ID)).missed) == 2
    assert (await look(mail, run_id="billing-run/acct_sim/2031-02")).missed == ()
    assert (await look(mail, since=LATER_SECONDS)).missed == ()


async def test_a_list_that_can_t_be_read_proves_nothing(
    mail: Mailroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that goes on failing raises: an empty answer would say that nothing is missing."""
    monkeypatch.setattr(stripe_pages, "FIRST_PAUSE_SECONDS", 0.0)
    await charge_some(mail.scene, [GOOD_CARD])
    await mail.deliver(mail.bodies()[0])
    mail.scene.sim.set_faults(fault("error", status=500, match={"method": "GET", "path": "^/v1/events$"}))
    with pytest.raises(Unreadable, match="a page of events: /v1/events: HTTP 500"):
        await look(mail)


async def test_an_event_of_the_list_reads_like_the_one_that_is_delivered(mail: Mailroom) -> None:
    """The same nudge, so that what is kept later is what would have been kept then."""
    await charge_some(mail.scene, [GOOD_CARD])
    parts = await parts_of(mail.accounts)
    [page] = [
        page
        async for page in parts.gateway.list_events(
            ACCOUNT, types=TYPES, created_from_epoch_seconds=0, created_to_epoch_seconds=None
        )
    ]
    delivered = [read_event(body) for body in mail.bodies() if json.loads(body)["type"] in TYPES]
    assert list(page.events) == delivered[::-1]
    assert page.complete
