"""`chargeonce restore` against a ledger and Stripe, without a proxy: what it refuses, and when it ends."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from activities import stripe_pages
from activities.ledger.restores import RestoreLedger
from deploy.postgres import Database
from tests.activities.scene import ACCOUNT, API_KEY, GOOD_CARD, Scene
from tests.restore.forgetful import declare, pay_and_restore
from worker.console_output import Output
from worker.failures import EXIT_FAILED, EXIT_REFUSED, CommandFailed
from worker.restore_actions import ClearCommand, clear_restore, declare_restore, show_restore
from workflows.domain.errors import RefusedToStart
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS


@pytest.fixture
def attached(scene: Scene, stage: Database, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """The scene, with this process configured for its ledger and its Stripe."""
    monkeypatch.delenv("CHARGEONCE_PROXY_URL", raising=False)
    monkeypatch.setenv("CHARGEONCE_DATABASE_URL", stage.app_url)
    monkeypatch.setenv("STRIPE_SECRET_KEY", API_KEY)
    monkeypatch.setenv("CHARGEONCE_STRIPE_API_BASE", scene.sim.url)
    monkeypatch.setattr(stripe_pages, "FIRST_PAUSE_SECONDS", 0.001)
    return scene


async def clear(
    *, key_rolled: bool = True, accept_strangers: bool = False, leave_out: Sequence[str] = ()
) -> None:
    """Type `chargeonce restore --clear`."""
    command = ClearCommand(
        who="tests",
        reason="scripted",
        look_back_days=35,
        key_rolled=key_rolled,
        accept_strangers=accept_strangers,
        live=False,
        leave_out=leave_out,
    )
    await clear_restore(Output(as_json=True), command)


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the one object on stdout."""
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


async def test_declared_shown_and_cleared(attached: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """What was paid is on record afterwards, as are who and why; there is nothing to clear before it."""
    scene, output = attached, Output(as_json=True)
    paid = await pay_and_restore(scene)
    await scene.set_age(2 * WINDOW_SECONDS)
    await show_restore(output)
    assert printed(capsys) == {"restored": False}
    with pytest.raises(RefusedToStart, match="nothing to clear"):
        await clear()
    for is_new in (True, False):
        await declare_restore(output, who="tests", reason="scripted")
        assert printed(capsys)["declared"] is is_new
    await show_restore(output)
    assert printed(capsys)["charges"] == {ACCOUNT.id: 1}
    with pytest.raises(RefusedToStart, match="--key-rolled"):
        await clear(key_rolled=False)
    await clear()
    [account] = printed(capsys)["accounts"]
    assert (account["account"], account["recorded"]) == (ACCOUNT.id, 1)
    charge = await scene.charge()
    assert (charge.state, charge.payment_intent) == (State.SUCCEEDED, paid.payment_intent)
    row = await scene.pool.fetchrow("SELECT cleared_by, cleared_why FROM ledger_restores")
    assert row is not None
    assert tuple(row) == ("tests", "scripted")


async def test_a_ledger_from_before_the_run_was_locked_is_not_cleared_unasked(attached: Scene) -> None:
    """It remembers neither run nor account, and whoever bills the period again charges everybody twice."""
    scene = attached
    paid = await pay_and_restore(scene)
    for table in ("charges", "run_events", "run_totals", "billing_runs"):
        await scene.owner.execute(f"DELETE FROM {table}")
    await declare(scene)
    with pytest.raises(CommandFailed) as failed:
        await clear()
    assert failed.value.exit_code == EXIT_REFUSED
    assert failed.value.details["strangers"] == [paid.payment_intent]
    assert await RestoreLedger(scene.pool).open() is not None
    await clear(accept_strangers=True)
    assert await RestoreLedger(scene.pool).open() is None


async def test_a_page_that_fails_clears_nothing_and_the_next_time_it_is_cleared(attached: Scene) -> None:
    """With a gap the command exits 1 and sending stays stopped."""
    scene = attached
    await scene.plan([GOOD_CARD])
    await declare(scene)
    scene.fault("error", status=500, match={"method": "GET", "path": "payment_intents$"})
    with pytest.raises(CommandFailed) as failed:
        await clear()
    assert failed.value.exit_code == EXIT_FAILED
    assert failed.value.details["gaps"]
    assert await RestoreLedger(scene.pool).open() is not None
    scene.clear_faults()
    await clear()
    await scene.work()
    assert (await scene.charge()).state is State.SUCCEEDED


async def test_an_account_is_left_out_only_where_nothing_can_be_sent_for_it(attached: Scene) -> None:
    """An account that is gone must not stop the others for ever; one with open charges is not gone."""
    scene = attached
    await scene.plan([GOOD_CARD])
    await declare(scene)
    with pytest.raises(CommandFailed, match="left out has open charges"):
        await clear(leave_out=[ACCOUNT.id])
    assert await RestoreLedger(scene.pool).open() is not None
    await scene.owner.execute("UPDATE charges SET state = 'canceled', reason = 'scripted'")
    await clear(leave_out=[ACCOUNT.id])
    assert await RestoreLedger(scene.pool).open() is None


async def test_a_backup_older_than_the_days_asked_for_is_looked_through_in_full(attached: Scene) -> None:
    """The last lock that the ledger knows is older than anything that it has forgotten."""
    scene = attached
    paid = await pay_and_restore(scene)
    await scene.set_age(90 * WINDOW_SECONDS)
    await declare(scene)
    await clear()
    charge = await scene.charge()
    assert (charge.state, charge.payment_intent) == (State.SUCCEEDED, paid.payment_intent)
