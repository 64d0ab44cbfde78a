"""Sweeping, settling and looking for events behind the real proxy, by the vault keys that a run may have."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from pydantic import SecretStr

from activities.accounts import Accounts
from activities.ledger import inbox
from activities.ledger.vault import VaultLedger
from activities.missed_events import find_missed
from activities.settle_for_reconcile import Flight, FlightEnd, settle_in_flight
from activities.sweep import SweepEnd, sweep_orphan
from activities.vault import CHARGING, RESENDING, RunVault
from activities.vault_credentials import ProxiedAccounts, VaultedKeys
from deploy.postgres import Database
from tests.activities.conftest import hurry
from tests.activities.local_limiter import LocalLimiter
from tests.activities.scene import (
    ACCOUNT,
    CONFIRM,
    GOOD_CARD,
    RATE_PER_SECOND,
    RUN_ID,
    START,
    Scene,
    open_scene,
)
from tests.proxy.stage import proxy_settings
from tests.reconcile.orphans import REASON, at_stripe, cancels, leave_orphan, parts_of
from tests.web.mailroom import Mailroom, open_gateway, open_mailroom
from worker.proxy.server import open_proxy
from workflows.contracts import RunKey
from workflows.domain.states import State
from workflows.domain.vault_keys import Mode

RUN = RunKey(run_id=RUN_ID, account=ACCOUNT.id)


@dataclass(frozen=True)
class Vaulted:
    """A scene whose reconciliation has vault keys and nothing else."""

    mail: Mailroom
    vault: RunVault
    accounts: Accounts

    @property
    def scene(self) -> Scene:
        """Ledger and Stripe; the scene's own workers have the real key."""
        return self.mail.scene

    async def settle_one(self) -> Flight:
        """Settle the only charge."""
        charge = await self.scene.charge()
        parts = await parts_of(self.accounts)
        [flight] = (await settle_in_flight(self.scene.pool, self.accounts, parts, [charge.charge_id])).flights
        return flight


@pytest.fixture
async def vaulted(database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Vaulted]:
    """A ledger, a simulator and a proxy between them."""
    hurry(monkeypatch)
    monkeypatch.setattr(inbox, "GATHER_SECONDS", 0.0)

    async def ask_proxy() -> ProxiedAccounts:
        return ProxiedAccounts(own=ACCOUNT.id, everybody=[ACCOUNT.id])

    async with (
        open_scene(database) as scene,
        open_proxy(proxy_settings(database, scene.sim.url)) as (proxy_url, _),
        open_mailroom(scene) as mail,
    ):
        vault = RunVault(VaultLedger(scene.pool), secret=SecretStr("v" * 32), mode=Mode.TEST)
        accounts = Accounts(
            VaultedKeys(vault=vault, proxy_url=proxy_url, ask_proxy=ask_proxy),
            open_gateway=open_gateway,
            limiter_of=lambda _: LocalLimiter(RATE_PER_SECOND),
            requests_at_once=8,
            slices_at_once=1,
        )
        try:
            yield Vaulted(mail, vault, accounts)
        finally:
            await accounts.close()


@pytest.mark.parametrize(("phase", "end"), [("charging", SweepEnd.CANCELED), ("failed", SweepEnd.NOT_NOW)])
async def test_a_sweep_cancels_by_the_reconciling_key_of_the_charge_s_run_where_it_may_have_one(
    vaulted: Vaulted, phase: str, end: SweepEnd
) -> None:
    """A run that failed has none: that is the reason, and nothing was intended."""
    scene = vaulted.scene
    left = await leave_orphan(scene)
    if phase == "failed":
        await scene.owner.execute("UPDATE billing_runs SET phase = 'failed', reason = 'scripted'")
    swept = await sweep_orphan(
        scene.pool,
        vaulted.accounts,
        await parts_of(vaulted.accounts),
        left.charge.charge_id,
        left.orphan,
        reason=REASON,
    )
    assert swept.end is end
    calls = await scene.pool.fetch(
        "SELECT k.label, c.endpoint FROM vault_calls c JOIN vault_keys k USING (key_id)"
    )
    told = {(row["label"], row["endpoint"]) for row in calls}
    if end is SweepEnd.CANCELED:
        assert ("reconciling", "POST /v1/payment_intents/{id}/cancel") in told
        assert (await at_stripe(scene, left.orphan)).status == "canceled"
    else:
        assert "reconciling" in swept.reason
        assert await cancels(scene) == []


async def test_a_charge_in_flight_is_sent_again_by_the_charging_key_and_without_it_only_by_an_approved_one(
    vaulted: Vaulted,
) -> None:
    """The charging key was revoked: looked at, and left in flight; then somebody approves a key."""
    scene = vaulted.scene
    a = scene.worker()
    await a.intend(await scene.prepare(a), CONFIRM)
    await scene.set_age(120)
    await vaulted.vault.key_for(RUN, CHARGING)
    await VaultLedger(scene.pool).revoke_for_run(RUN_ID, who="tests", reason="scripted")
    flight = await vaulted.settle_one()
    assert flight.end is FlightEnd.IN_FLIGHT
    assert "a confirm would have to be sent, and may not be" in flight.reason
    assert scene.wire == ["create v1"]
    await vaulted.vault.approve(RUN, RESENDING, who="tests", reason="scripted")
    assert (await vaulted.settle_one()).end is FlightEnd.SETTLED
    assert (await scene.charge()).state is State.SUCCEEDED
    await scene.audit()


async def test_with_its_charging_key_an_open_run_s_charge_is_settled(vaulted: Vaulted) -> None:
    """No approval is needed while the run is open."""
    scene = vaulted.scene
    a = scene.worker()
    await a.intend(await scene.prepare(a), CONFIRM)
    await scene.set_age(120)
    assert (await vaulted.settle_one()).end is FlightEnd.SETTLED
    assert (await scene.charge()).state is State.SUCCEEDED


async def test_events_are_listed_by_the_reading_key(vaulted: Vaulted) -> None:
    """It belongs to the account and may read everything."""
    scene, mail = vaulted.scene, vaulted.mail
    await scene.plan([GOOD_CARD] * 2)
    await scene.work()
    await mail.deliver(*mail.bodies()[:3])
    await scene.set_age(3_600)
    found = await find_missed(
        scene.pool,
        await parts_of(vaulted.accounts),
        since_epoch_seconds=START,
        until_epoch_seconds=START + 3_600,
    )
    assert (len(found.missed), found.requests) == (2, 1)
