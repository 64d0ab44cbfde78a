"""The events of one charge in every order, through the real table, against the real (simulated) Stripe.

One charge per order, all of them side by side: each round delivers every charge its next event and works
through them all.
"""

import itertools
import json
from collections import defaultdict
from collections.abc import Sequence

import pytest

from tests.activities.dashboard import post
from tests.activities.scene import CONFIRM, CREATE, SLOW_DEBIT, Scene
from tests.web.mailroom import Mailroom
from workflows.domain.states import State

DAY_SECONDS = 86_400.0
FAILING_DEBIT = "pm_usBankAccount_insufficientFunds"
EVENTS = 5
# All 120 orders are a proof; `make test` goes through every 12th here, and through all without a database.
sizes = pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.proof)])


def orders(every: int) -> list[tuple[int, ...]]:
    """Every n-th order of five events; each charge also gets one of them again, another one for each."""
    plain = list(itertools.permutations(range(EVENTS)))
    doubled = [(*order, order[index % EVENTS]) for index, order in enumerate(plain)]
    return doubled[::every]


def by_payment(bodies: Sequence[bytes]) -> dict[str, list[bytes]]:
    """Sort events by their PaymentIntent, each in the order in which they happened."""
    found: defaultdict[str, list[bytes]] = defaultdict(list)
    for body in bodies:
        subject = json.loads(body)["data"]["object"]
        found[subject["id"] if subject["object"] == "payment_intent" else subject["payment_intent"]].append(
            body
        )
    return found


async def deliver_in_orders(mail: Mailroom, every: int, wanted: Sequence[str]) -> int:
    """Deliver each payment its events of these types in an order of its own; return the deliveries."""
    payments = [
        [body for body in bodies if json.loads(body)["type"] in wanted]
        for bodies in by_payment(mail.bodies()).values()
    ]
    assert {len(bodies) for bodies in payments} == {EVENTS}
    assert len(payments) == len(orders(every))
    assert len({json.loads(body)["created"] for bodies in payments for body in bodies}) <= 3
    letters = [
        [bodies[number] for number in order] for bodies, order in zip(payments, orders(every), strict=True)
    ]
    for round_ in zip(*letters, strict=True):
        await mail.deliver(*round_)
        await mail.work()
    return sum(len(one) for one in letters)


async def states(scene: Scene) -> set[str]:
    """Return the states of all charges."""
    return {row["state"] for row in await scene.pool.fetch("SELECT DISTINCT state FROM charges")}


@pytest.mark.parametrize(
    ("card", "end"), [(SLOW_DEBIT, State.SUCCEEDED), (FAILING_DEBIT, State.DECLINED)], ids=["paid", "failed"]
)
@pytest.mark.parametrize("answered", [True, False], ids=["answered", "unanswered"])
@sizes
async def test_every_order_of_a_debit_ends_the_same(
    scene: Scene, mail: Mailroom, every: int, card: str, end: State, *, answered: bool
) -> None:
    """Five events in each order, with a duplicate, whether or not the confirm's answer was recorded."""
    worker = scene.worker()
    await scene.plan([card] * len(orders(every)))
    for charge in await worker.claim():
        sent = await worker.sender.send_first(charge, CREATE, reason="planned")
        intent = await worker.intend(sent.charge, CONFIRM)
        answer = await worker.transmit(intent)
        if answered:
            await worker.record(intent, answer)
    assert await states(scene) == {State.PROCESSING if answered else State.CONFIRMING}
    await scene.set_age(5 * DAY_SECONDS)
    assert scene.sim.movements if end is State.SUCCEEDED else not scene.sim.movements
    paid = end is State.SUCCEEDED
    count = await deliver_in_orders(
        mail,
        every,
        ["payment_intent.created", "charge.pending", "payment_intent.processing"]
        + (
            ["charge.succeeded", "payment_intent.succeeded"]
            if paid
            else ["charge.failed", "payment_intent.payment_failed"]
        ),
    )
    if not answered and not paid:
        # I14: an open PaymentIntent decides nothing for a confirm in flight; the run's own look does.
        assert await states(scene) == {State.CONFIRMING}
        await scene.work()
    assert await states(scene) == {end}
    print(f"{card}: {count} deliveries to {len(orders(every))} charges in every order: all {end}")
    await scene.audit()


@sizes
async def test_every_order_of_a_refund_that_fails_ends_the_same(
    scene: Scene, mail: Mailroom, every: int
) -> None:
    """Five events of a refund that succeeded and failed a month later, in each order."""
    await scene.plan(["pm_card_refundFail"] * len(orders(every)))
    await scene.work()
    for row in await scene.pool.fetch("SELECT payment_intent FROM charges"):
        await post(scene.sim.url, "/v1/refunds", payment_intent=row["payment_intent"], amount=1_000)
    await scene.set_age(40 * DAY_SECONDS)
    assert scene.sim.movements
    count = await deliver_in_orders(
        mail,
        every,
        ["charge.refunded", "refund.created", "refund.failed", "refund.updated", "charge.refund.updated"],
    )
    found = await scene.pool.fetch("SELECT status, count(*) AS n FROM refunds GROUP BY 1")
    assert [(row["status"], row["n"]) for row in found] == [("failed", len(orders(every)))]
    assert await states(scene) == {State.SUCCEEDED}
    print(f"refunds: {count} deliveries in every order: all failed, every charge succeeded")


@sizes
async def test_every_order_of_a_dispute_ends_the_same(scene: Scene, mail: Mailroom, every: int) -> None:
    """Opened, withdrawn, answered, reinstated, closed: in each order the dispute is won, the charge paid."""
    await scene.plan(["pm_card_createDispute"] * len(orders(every)))
    await scene.work()
    for body in mail.bodies():
        event = json.loads(body)
        if event["type"] == "charge.dispute.created":
            dispute = event["data"]["object"]["id"]
            await post(scene.sim.url, f"/v1/disputes/{dispute}", **{"metadata[seen]": "yes"})
            await post(
                scene.sim.url,
                f"/v1/disputes/{dispute}",
                **{"evidence[uncategorized_text]": "winning_evidence"},
            )
    stages = ("created", "funds_withdrawn", "updated", "funds_reinstated", "closed")
    count = await deliver_in_orders(mail, every, [f"charge.dispute.{stage}" for stage in stages])
    found = await scene.pool.fetch("SELECT status, count(*) AS n FROM disputes GROUP BY 1")
    assert [(row["status"], row["n"]) for row in found] == [("won", len(orders(every)))]
    assert await states(scene) == {State.SUCCEEDED}
    print(f"disputes: {count} deliveries in every order: all won, every charge succeeded")
