"""Sweeps, settling and a run at once over the same charges: nobody twice and nobody forgotten."""

import asyncio
import random

import pytest

from activities.settle_for_reconcile import settle_in_flight
from tests.activities.scene import (
    ACCOUNT,
    CANCEL,
    CONFIRM,
    CREATE,
    GOOD_CARD,
    SLOW_DEBIT,
    Scene,
    Worker,
    fault,
)
from tests.reconcile.orphans import at_stripe, cancels, parts_of, sweep
from tests.web.mailroom import Mailroom
from workflows.domain.charge import Charge, Intent
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS

CHARGES = 12
ROUNDS = 4


async def leave_a_mess(scene: Scene, dice: random.Random) -> list[tuple[Charge, str]]:
    """Create every charge, some of them twice by a pruned key, and freeze some in flight; return orphans."""
    a = scene.worker()
    await scene.plan([dice.choice([GOOD_CARD, GOOD_CARD, SLOW_DEBIT]) for _ in range(CHARGES)])
    twice: list[Intent] = []
    for charge in await a.claim():
        first = await a.intend(charge, CREATE)
        fate = dice.randrange(4)
        if fate == 0:
            continue
        if fate == 1:
            twice.append(await a.intend_again(first.charge))
        answer = await a.transmit(first)
        if fate == 2:
            continue
        await a.record(first, answer)
    await scene.set_age(WINDOW_SECONDS + 60)
    return [await orphan_of(a, again) for again in twice]


async def orphan_of(worker: Worker, again: Intent) -> tuple[Charge, str]:
    """Let a create run a second time, its key pruned."""
    late = await worker.transmit(again)
    assert late.payment_intent is not None
    return await worker.record(again, late), late.payment_intent.id


async def everything_at_stripe(scene: Scene) -> list[tuple[str, str]]:
    """Return (charge's id, PaymentIntent) of all that carries an identity, the charges' own included."""
    account = scene.worker()
    pages = account.gateway.scan_payment_intents(
        ACCOUNT, customer=None, created_from_epoch_seconds=0, created_to_epoch_seconds=None
    )
    return [(one.charge_id or "", one.id) async for page in pages for one in page.payment_intents]


@pytest.mark.parametrize("seed", range(8))
async def test_sweeping_settling_and_charging_at_once_pay_everybody_once(mail: Mailroom, seed: int) -> None:
    """Two sweepers go for everything that Stripe shows, the charges' own included, while workers go on."""
    scene, dice = mail.scene, random.Random(seed)
    orphans = await leave_a_mess(scene, dice)
    parts = await parts_of(mail.accounts)
    scene.sim.set_faults(
        fault("drop", place="after", operation=CANCEL, times=2),
        fault("drop", name="confirms", place="after", operation=CONFIRM, times=2),
    )

    async def sweep_all() -> None:
        shown = await everything_at_stripe(scene)
        dice.shuffle(shown)
        for charge_id, payment_intent in shown:
            await sweep(mail, await scene.charge(charge_id), payment_intent)

    async def settle_all() -> None:
        rows = await scene.pool.fetch("SELECT charge_id FROM charges")
        await settle_in_flight(scene.pool, mail.accounts, parts, [row["charge_id"] for row in rows])

    for number in range(ROUNDS):
        await asyncio.gather(sweep_all(), sweep_all(), settle_all(), scene.work(), scene.work())
        await scene.set_age(WINDOW_SECONDS + 60 + (number + 1) * 3_700)
    charges = [
        await scene.charge(row["charge_id"]) for row in await scene.pool.fetch("SELECT * FROM charges")
    ]
    assert {one.state for one in charges} <= {State.SUCCEEDED, State.PROCESSING}
    for _, orphan in orphans:
        assert (await at_stripe(scene, orphan)).status == "canceled"
    own = {one.payment_intent for one in charges}
    assert not own & {key.removeprefix("cancel_").rpartition("_")[0] for key, _, _ in await cancels(scene)}
    await scene.audit()
