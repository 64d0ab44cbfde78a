"""Vault keys after a restore: nobody who sent before it has one that the proxy takes."""

import pytest

from activities.ledger.restores import RestoreLedger
from activities.ledger.vault import VaultLedger
from activities.restored import RestoreCleaner
from activities.vault import CHARGING, RECONCILING, RESENDING
from tests.activities.scene import ACCOUNT, CONFIRM, GOOD_CARD, RUN_ID, Scene
from tests.reconcile.orphans import at_stripe
from tests.reconcile.test_through_proxy import Vaulted, vaulted  # noqa: F401 - a fixture
from tests.restore.forgetful import declare
from tests.restore.test_leftovers import leave
from workflows.contracts import RunKey
from workflows.domain.errors import RefusedToStart

RUN = RunKey(run_id=RUN_ID, account=ACCOUNT.id)


async def valid_keys(scene: Scene) -> list[str]:
    """Return what the keys are for that nobody has revoked."""
    rows = await scene.pool.fetch("SELECT label FROM vault_keys WHERE revoked_at IS NULL ORDER BY label")
    return [row["label"] for row in rows]


async def test_a_key_that_the_ledger_has_forgotten_is_never_issued_again(
    vaulted: Vaulted,  # noqa: F811
) -> None:
    """Keys are derived, so the same serial would be the key that a sender from before still has."""
    scene, vault = vaulted.scene, vaulted.vault
    await scene.plan([GOOD_CARD])
    lost = [await vault.key_for(RUN, CHARGING)]
    for _ in range(2):
        await vault.rotate(RUN, CHARGING, who="tests", reason="scripted")
        lost.append(await vault.key_for(RUN, CHARGING))
    await scene.owner.execute("DELETE FROM vault_keys")
    await declare(scene)
    issued = [await vault.key_for(RUN, CHARGING)]
    await vault.rotate(RUN, CHARGING, who="tests", reason="scripted")
    issued.append(await vault.key_for(RUN, CHARGING))
    assert len({key.get_secret_value() for key in (*lost, *issued)}) == 5


async def test_every_key_that_sends_for_a_run_is_replaced(vaulted: Vaulted) -> None:  # noqa: F811
    """What a run may have it has anew; what people approve they approve again; it can be repeated."""
    scene, vault, ledger = vaulted.scene, vaulted.vault, VaultLedger(vaulted.scene.pool)
    worker = scene.worker()
    await worker.intend(await scene.prepare(worker), CONFIRM)
    before = [await vault.key_for(RUN, CHARGING), await vault.key_for(RUN, RECONCILING)]
    await vault.approve(RUN, RESENDING, who="tests", reason="scripted")
    await declare(scene)
    assert list(await ledger.runs_with_keys()) == [(RUN_ID, ACCOUNT.id)]
    for times in (3, 2):
        assert len(await vault.replace_all(RUN, who="tests", reason="scripted")) == times
        assert await valid_keys(scene) == ["charging", "reconciling"]
    after = [await vault.key_for(RUN, CHARGING), await vault.key_for(RUN, RECONCILING)]
    assert not {key.get_secret_value() for key in before} & {key.get_secret_value() for key in after}
    with pytest.raises(RefusedToStart):
        await vault.key_for(RUN, RESENDING)


@pytest.mark.parametrize("phase", ["planned", "failed"])
async def test_leftovers_are_canceled_behind_the_proxy_wherever_the_run_stands(
    vaulted: Vaulted,  # noqa: F811
    phase: str,
) -> None:
    """A backup from before the approval must not stay closed for ever; and still after a rotation."""
    scene = vaulted.scene
    made = await leave(scene, creates=1)
    await scene.owner.execute("UPDATE charges SET amount_minor = amount_minor + 1")
    await scene.owner.execute("UPDATE billing_runs SET phase = $1, reason = 'scripted'", phase)
    restore = await RestoreLedger(scene.pool).open()
    assert restore is not None
    cleaner = RestoreCleaner(scene.pool, vaulted.accounts)
    since = restore.found_at.replace(year=restore.found_at.year - 1)
    assert (await cleaner.clean(ACCOUNT.id, since=since)).gaps == []
    assert (await at_stripe(scene, made[0])).status == "canceled"
    await vaulted.vault.replace_all(RUN, who="tests", reason="scripted")
    assert (await cleaner.clean(ACCOUNT.id, since=since)).gaps == []
