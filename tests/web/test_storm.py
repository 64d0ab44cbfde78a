"""Events in random order, doubled, while the charges that they are about are being confirmed."""

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

from activities.carry import End
from activities.ledger.inbox import EventState
from tests.activities.scene import CONFIRM, DECLINING_CARD, GOOD_CARD, SLOW_DEBIT, Scene, fault
from tests.web.mailroom import Mailroom
from tests.web.postbox import Postbox, open_postbox, settings_for
from worker.inbox_loop import working_inbox
from workflows.domain.answer import METADATA_CHARGE
from workflows.domain.charge import Charge
from workflows.domain.states import State

SEED = 20_310_301
FAILING_DEBIT = "pm_usBankAccount_insufficientFunds"
CARDS = (*[GOOD_CARD] * 6, DECLINING_CARD, SLOW_DEBIT, SLOW_DEBIT, FAILING_DEBIT)
EVENTS_PER_CHARGE = 3.4
POSTMEN, CARRIED_AT_ONCE = 12, 24
DAY_SECONDS = 86_400.0
DEADLINE_SECONDS = 1_500
WAITING = "SELECT count(*) FROM inbox_events WHERE state = 'waiting'"


class Storm:
    """Everything that Stripe sends, twice and in any order, into two receivers."""

    def __init__(self, mail: Mailroom, boxes: list[Postbox], chance: random.Random) -> None:
        self._mail = mail
        self._boxes = boxes
        self._chance = chance
        self._bag: list[bytes] = []
        self.events = 0
        self.deliveries = 0
        self.repeated = 0
        self.sending = True

    def fill(self) -> None:
        """Put what has happened since into the bag, twice."""
        fresh = self._mail.bodies(since=self.events)
        self.events += len(fresh)
        self._bag += fresh * 2

    async def blow(self) -> None:
        """Deliver whatever is drawn from the bag, until nothing more comes."""
        while True:
            self.fill()
            if not self._bag:
                if not self.sending:
                    return
                await asyncio.sleep(0.005)
                continue
            place = self._chance.randrange(len(self._bag))
            self._bag[place], self._bag[-1] = self._bag[-1], self._bag[place]
            body = self._bag.pop()
            status = await self._chance.choice(self._boxes).post(body)
            if status == 503:  # this loop stood still for longer than a commit may take: it comes again
                self._bag.append(body)
                self.repeated += 1
                continue
            assert status == 200
            self.deliveries += 1


async def confirm_all(scene: Scene) -> None:
    """Carry every charge to its end, many at once, however many answers are lost on the way."""
    worker = scene.worker()
    places = asyncio.Semaphore(CARRIED_AT_ONCE)

    async def carry(charge: Charge) -> End:
        async with places:
            return await worker.carrier.carry(charge)

    while charges := await worker.claim():
        await asyncio.gather(*(carry(charge) for charge in charges))


async def wait_until_worked_through(scene: Scene, mail: Mailroom) -> None:
    """Return once no event waits any more, and none was parked or left unmatched."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while await scene.pool.fetchval(WAITING):  # noqa: ASYNC110 - nobody signals
            await asyncio.sleep(0.05)
    counts = await mail.states()
    assert counts.keys() <= {EventState.DONE, EventState.IGNORED}, counts


@pytest.mark.timeout(DEADLINE_SECONDS + 60)
@pytest.mark.parametrize("events", [500, pytest.param(10_000, marks=pytest.mark.proof)])
async def test_the_ledger_equals_the_book_after_a_storm(scene: Scene, mail: Mailroom, events: int) -> None:
    """Random order, doubled, to two processes, against concurrent confirmation: ledger and book agree."""
    chance = random.Random(SEED)
    count = int(events / EVENTS_PER_CHARGE) + 1
    await scene.plan([chance.choice(CARDS) for _ in range(count)])
    scene.sim.set_faults(
        fault("drop", name="lost", place="after", operation=CONFIRM, match={"probability": 0.1}),
        fault(
            "error", name="failed", place="after", operation=CONFIRM, status=500, match={"probability": 0.05}
        ),
    )
    async with AsyncExitStack() as stack:
        boxes = [await stack.enter_async_context(open_postbox(settings_for(scene.database))) for _ in "ab"]
        for _ in "ab":
            loop = working_inbox(mail.worker(), scene.database.app_url, sweep_seconds=0.2)
            await stack.enter_async_context(loop)
        storm = Storm(mail, boxes, chance)
        async with asyncio.timeout(DEADLINE_SECONDS), asyncio.TaskGroup() as group:
            postmen = [group.create_task(storm.blow()) for _ in range(POSTMEN)]
            await confirm_all(scene)
            await scene.set_age(5 * DAY_SECONDS)
            assert scene.sim.movements
            storm.fill()
            storm.sending = False
            assert len(postmen) == POSTMEN
        await wait_until_worked_through(scene, mail)
    await compare_with_the_book(scene)
    by_webhook = [one for one in await scene.decisions() if one[0] == "settled_by_webhook"]
    print(
        f"seed {SEED}: {count} charges, {storm.events} events, {storm.deliveries} deliveries"
        f" ({storm.repeated} of them again after a 503),"
        f" {len(by_webhook)} charges settled by a webhook first; inbox {await mail.states()}"
    )
    assert storm.deliveries == 2 * storm.events >= 2 * events * 0.9


async def compare_with_the_book(scene: Scene) -> None:
    """Every charge is succeeded if and only if the book says that its customer paid, and none is open."""
    paid = {movement.metadata[METADATA_CHARGE] for movement in scene.sim.movements}
    rows = await scene.pool.fetch("SELECT charge_id, state FROM charges")
    assert {row["state"] for row in rows} <= {State.SUCCEEDED, State.DECLINED}
    assert {row["charge_id"] for row in rows if row["state"] == State.SUCCEEDED} == paid
    repeated = await scene.pool.fetch(
        "SELECT charge_id, evidence ->> 'state' AS state FROM decisions"
        " WHERE decision = 'settled_by_webhook' GROUP BY 1, 2 HAVING count(*) > 1"
    )
    assert repeated == [], "an effect was applied twice"
    await scene.audit()
