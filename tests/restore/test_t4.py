"""Trace T4: a ledger that was restored from before a create must not make it anew."""

import asyncio
from pathlib import Path
from typing import cast

import asyncpg
import pytest
from temporalio.testing import ActivityEnvironment

from activities import stripe_pages
from activities.charge import ChargeActivities
from activities.ledger.charges import ChargeLedger
from activities.ledger.control import ControlLedger
from activities.ledger.database import open_pool
from activities.ledger.inbox import InboxLedger
from activities.ledger.money_back import MoneyBackLedger
from activities.ledger.restores import RestoreLedger
from activities.merge import LookEnd, Merger, Subject
from activities.settle_for_reconcile import FlightEnd, settle_in_flight
from deploy.postgres import Database, PostgresServer
from tests.activities.scene import ACCOUNT, CONFIRM, CREATE, GOOD_CARD, RUN_ID
from tests.reconcile.orphans import parts_of
from tests.restore.forgetful import clean, declare, forget, pay_and_restore
from tests.web.mailroom import Mailroom
from workflows.contracts import HoldKind, Progress, RunKey, Slice
from workflows.domain.errors import StaleWrite
from workflows.domain.merge import About
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS


async def test_t4_within_the_window_stripe_replays_what_the_restored_ledger_has_forgotten(
    mail: Mailroom,
) -> None:
    """Keys are derived, and nothing that varies enters them: create v1 and confirm v1 are the same again."""
    scene = mail.scene
    paid = await pay_and_restore(scene)
    await scene.set_age(WINDOW_SECONDS / 2)
    await scene.work()
    charge = await scene.charge()
    assert (charge.state, charge.payment_intent) == (State.SUCCEEDED, paid.payment_intent)
    assert len(scene.sim.movements) == 1


async def test_t4_past_the_window_what_is_recorded_before_the_run_goes_on_is_not_charged_again(
    mail: Mailroom,
) -> None:
    """The keys are pruned, but Stripe's word was merged first: planned becomes succeeded, with an alarm."""
    scene = mail.scene
    paid = await pay_and_restore(scene)
    await scene.set_age(2 * WINDOW_SECONDS)
    merger = Merger(
        await parts_of(mail.accounts),
        charges=ChargeLedger(scene.pool),
        inbox=InboxLedger(scene.pool),
        money_back=MoneyBackLedger(scene.pool),
    )
    look = await merger.look(
        Subject(paid.payment_intent or "", paid.charge_id, frozenset({About.PAYMENT}), event_ids=())
    )
    assert look.end is LookEnd.MERGED
    assert await scene.work() == {}
    charge = await scene.charge()
    assert (charge.state, charge.payment_intent) == (State.SUCCEEDED, paid.payment_intent)
    assert await scene.alarms() == 1
    assert len(scene.sim.movements) == 1


async def test_t4_create_v1_is_not_sent_again_after_a_restore(mail: Mailroom) -> None:
    """Keys are pruned and the ledger knows of nothing: nothing is sent until the payment is on record."""
    scene = mail.scene
    paid = await pay_and_restore(scene)
    await scene.set_age(2 * WINDOW_SECONDS)
    await declare(scene)
    posts = len(scene.posts)
    await scene.work()
    assert len(scene.posts) == posts
    cleaning = await clean(mail)
    assert (cleaning.recorded, cleaning.gaps, cleaning.strangers) == (1, [], [])
    await scene.work()
    charge = await scene.charge()
    assert (charge.state, charge.payment_intent) == (State.SUCCEEDED, paid.payment_intent)
    assert len(scene.posts) == posts
    assert len(scene.sim.movements) == 1


async def test_t4_of_several_leftovers_all_but_one_are_canceled(mail: Mailroom) -> None:
    """Create v1 ran twice, and the ledger was restored to where it is planned: one can be paid, once."""
    scene = mail.scene
    worker = scene.worker()
    await scene.plan([GOOD_CARD])
    intent = await worker.intend(await worker.claim_one(), CREATE)
    await worker.transmit(intent)
    await scene.set_age(WINDOW_SECONDS + 60)
    await worker.transmit(intent)
    assert len(await scene.open_at_stripe()) == 2
    await forget(scene)
    await declare(scene)
    cleaning = await clean(mail)
    assert (cleaning.canceled, cleaning.gaps) == (1, [])
    assert len(await scene.open_at_stripe()) == 1
    await scene.work()
    assert (await scene.charge()).state is State.SUCCEEDED
    assert len(scene.sim.movements) == 1


async def test_who_had_claimed_a_charge_before_can_begin_nothing_after(mail: Mailroom) -> None:
    """Fence and state are still right; the restore alone refuses the create, and the confirm."""
    scene = mail.scene
    worker = scene.worker()
    await scene.plan([GOOD_CARD, GOOD_CARD])
    planned, other = await worker.claim()
    prepared = (await worker.sender.send_first(other, CREATE, reason="planned")).charge
    await declare(scene)
    posts = len(scene.posts)
    for charge, operation in ((planned, CREATE), (prepared, CONFIRM)):
        with pytest.raises(StaleWrite):
            await worker.intend(charge, operation)
    assert len(scene.posts) == posts


async def test_nobody_sends_while_a_restore_is_open(mail: Mailroom) -> None:
    """Neither a first send nor a resend, by a worker or by who reconciles; the run is held and says why."""
    scene = mail.scene
    worker = scene.worker()
    prepared = await scene.prepare(worker)
    await worker.intend(prepared, CONFIRM)
    await declare(scene)
    posts = len(scene.posts)
    with pytest.raises(StaleWrite):
        await worker.intend_again(await scene.charge())
    flights = await settle_in_flight(
        scene.pool,
        mail.accounts,
        await parts_of(mail.accounts),
        [prepared.charge_id],
        abandoned_runs=[RUN_ID],
    )
    assert flights.count()[FlightEnd.SETTLED] == 0
    activities = ChargeActivities(
        ledger=ChargeLedger(scene.pool), accounts=mail.accounts, control=ControlLedger(scene.pool)
    )
    work = Slice(run=RunKey(run_id=RUN_ID, account=ACCOUNT.id), slice_no=0)
    progress = cast("Progress", await ActivityEnvironment().run(activities.charge_slice, work))
    assert progress.halted_kind is HoldKind.BREAKER
    assert "restored" in (progress.halted or "")
    assert len(scene.posts) == posts
    await clean(mail)
    await scene.set_age(600)
    await scene.work()
    assert (await scene.charge()).state is State.SUCCEEDED


async def test_a_failing_page_leaves_the_restore_open(
    mail: Mailroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Stripe did not show in full clears nothing; asked again, it does."""
    monkeypatch.setattr(stripe_pages, "FIRST_PAUSE_SECONDS", 0.001)
    scene = mail.scene
    await pay_and_restore(scene)
    await declare(scene)
    scene.fault("error", status=500, match={"method": "GET", "path": "payment_intents$"})
    assert (await clean(mail)).gaps
    assert await RestoreLedger(scene.pool).open() is not None
    scene.clear_faults()
    assert not (await clean(mail)).gaps
    assert await RestoreLedger(scene.pool).open() is None


async def test_charges_that_the_ledger_has_lost_are_named(mail: Mailroom) -> None:
    """A payment of a charge that is in no run would be made anew by the next run of its period."""
    scene = mail.scene
    paid = await pay_and_restore(scene)
    await scene.owner.execute("DELETE FROM charges")
    await declare(scene)
    assert (await clean(mail)).strangers == [paid.payment_intent]


async def test_another_cluster_is_noticed_by_the_next_connection(database: Database) -> None:
    """An identity that is not this server's opens a restore; one that is opens none, however often asked."""
    async with open_pool(database.app_url, connections=3) as pool:
        await asyncio.gather(*(pool.fetchval("SELECT pg_sleep(0.01)") for _ in range(3)))
        assert await RestoreLedger(pool).open() is None
    owner = await asyncpg.connect(database.owner_url)
    await owner.execute("UPDATE ledger_identity SET system_identifier = 1")
    await owner.close()
    async with open_pool(database.app_url, connections=3) as pool:
        await asyncio.gather(*(pool.fetchval("SELECT pg_sleep(0.01)") for _ in range(3)))
        restore = await RestoreLedger(pool).open()
        assert restore is not None
        assert "was another one" in restore.why
        assert not await RestoreLedger(pool).declare(who="tests", why="again")


async def test_a_crash_of_the_server_is_no_restore(tmp_path: Path) -> None:
    """After a kill -9 of PostgreSQL identity and timeline are as before."""
    from activities.ledger.migrate import migrate
    from deploy.postgres import GRANTED_ROLES

    server = PostgresServer(tmp_path / "postgres", durable=True)
    await server.start()
    try:
        await migrate(server.owner_url, **GRANTED_ROLES, movable_clock=True)
        server.kill()
        await server.start()
        async with open_pool(server.app_url, connections=1) as pool:
            assert await RestoreLedger(pool).open() is None
            assert await pool.fetchval("SELECT count(*) FROM ledger_identity") == 1
    finally:
        await server.stop()
