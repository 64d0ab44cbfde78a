"""Refunds and disputes: recorded beside the charge, never instead of it (invariant I8)."""

from activities.ledger.inbox import EventState
from tests.activities.dashboard import post
from tests.activities.scene import ACCOUNT, AMOUNT_MINOR, Scene, fault
from tests.web.mailroom import Mailroom, types_of
from workflows.domain.states import State

LATER_SECONDS = 40 * 86_400.0  # when every refund has ended


async def pay(scene: Scene, card: str) -> str:
    """Charge one customer and return the charge's id."""
    await scene.plan([card])
    await scene.work()
    charge = await scene.charge()
    assert charge.state is State.SUCCEEDED
    return charge.charge_id


async def refund(scene: Scene, amount_minor: int) -> None:
    """Refund a part of the only charge."""
    charge = await scene.charge()
    await post(scene.sim.url, "/v1/refunds", payment_intent=charge.payment_intent, amount=amount_minor)


async def show_evidence(scene: Scene, dispute: str, text: str) -> None:
    """Answer a dispute."""
    await post(scene.sim.url, f"/v1/disputes/{dispute}", **{"evidence[uncategorized_text]": text})


async def let_refunds_end(scene: Scene) -> None:
    """Move on to where each refund has become what it becomes."""
    await scene.set_age(LATER_SECONDS)
    assert scene.sim.movements


async def told(scene: Scene, prefix: str) -> list[tuple[str, bool]]:
    """Return the lines of the charge's story that begin so, with whether they are alarms."""
    return [one for one in await scene.decisions() if one[0].startswith(prefix)]


async def test_refunds_stand_beside_the_charge(scene: Scene, mail: Mailroom) -> None:
    """Partial, full, failed later: each is a row and a line of the story, and the charge stays succeeded."""
    charge_id = await pay(scene, "pm_card_refundFail")
    await refund(scene, 1_000)
    await mail.deliver(*mail.bodies())
    await mail.work()
    [row] = await mail.money_back.of_charge(charge_id)
    assert (row["status"], row["amount_minor"]) == ("succeeded", 1_000)
    await refund(scene, AMOUNT_MINOR - 1_000)
    await let_refunds_end(scene)
    bodies = mail.bodies()
    assert "refund.failed" in types_of(bodies)
    await mail.deliver(*bodies)
    await mail.work()
    rows = await mail.money_back.of_charge(charge_id)
    assert [(row["kind"], row["status"]) for row in rows] == [("refund", "failed")] * 2
    assert (await scene.charge()).state is State.SUCCEEDED
    assert await told(scene, "refund_") == [("refund_succeeded", False), *[("refund_failed", True)] * 2]


async def test_a_dispute_stands_beside_the_charge_through_all_its_stages(
    scene: Scene, mail: Mailroom
) -> None:
    """Opened, money withdrawn, answered, won: one row, an alarm at the start, the charge stays succeeded."""
    charge_id = await pay(scene, "pm_card_createDispute")
    await mail.deliver(*mail.bodies())
    await mail.work()
    [row] = await mail.money_back.of_charge(charge_id)
    assert (row["kind"], row["status"], row["reason"]) == ("dispute", "needs_response", "fraudulent")
    await post(
        scene.sim.url, f"/v1/disputes/{row['id']}", **{"evidence[uncategorized_text]": "winning_evidence"}
    )
    await mail.deliver(*mail.bodies())
    await mail.work()
    [row] = await mail.money_back.of_charge(charge_id)
    assert row["status"] == "won"
    assert (await scene.charge()).state is State.SUCCEEDED
    assert await told(scene, "dispute_") == [("dispute_needs_response", True), ("dispute_won", False)]


async def test_an_inquiry_that_is_lost_is_an_alarm(scene: Scene, mail: Mailroom) -> None:
    """A dispute whose evidence loses is for people to see, as its beginning is."""
    charge_id = await pay(scene, "pm_card_createDisputeProductNotReceived")
    await mail.deliver(*mail.bodies())
    await mail.work()
    [row] = await mail.money_back.of_charge(charge_id)
    await post(
        scene.sim.url, f"/v1/disputes/{row['id']}", **{"evidence[uncategorized_text]": "losing_evidence"}
    )
    await mail.deliver(*mail.bodies())
    await mail.work()
    assert await told(scene, "dispute_") == [("dispute_needs_response", True), ("dispute_lost", True)]
    assert (await scene.charge()).state is State.SUCCEEDED


async def test_an_earlier_look_never_overwrites_a_later_one(scene: Scene, mail: Mailroom) -> None:
    """Two processes list refunds at once: the one that asked first and writes last changes nothing."""
    charge_id = await pay(scene, "pm_card_refundFail")
    charge = await scene.charge()
    await refund(scene, 1_000)
    gateway = scene.worker().gateway
    early, late = await mail.money_back.next_look(), await mail.money_back.next_look()
    then = await gateway.list_refunds(ACCOUNT, charge.payment_intent or "")
    await let_refunds_end(scene)
    now = await gateway.list_refunds(ACCOUNT, charge.payment_intent or "")
    assert await mail.money_back.save_refunds(charge, now.items, look=late) == 1
    assert await mail.money_back.save_refunds(charge, then.items, look=early) == 0
    [row] = await mail.money_back.of_charge(charge_id)
    assert row["status"] == "failed"


async def test_a_list_that_can_not_be_read_concludes_nothing(scene: Scene, mail: Mailroom) -> None:
    """The events wait until Stripe has answered in full; no refund is taken for absent."""
    charge_id = await pay(scene, "pm_card_visa_1")
    await refund(scene, 1_000)
    await mail.accounts.choose(None)
    scene.sim.set_faults(fault("error", status=500, match={"method": "GET", "path": "^/v1/refunds"}))
    await mail.deliver(*mail.bodies())
    await mail.work()
    assert "/v1/refunds: HTTP 500" in (await mail.reasons(EventState.WAITING))[0]
    assert await mail.money_back.of_charge(charge_id) == []
    scene.clear_faults()
    await scene.set_age(60)
    await mail.work()
    assert [row["amount_minor"] for row in await mail.money_back.of_charge(charge_id)] == [1_000]
