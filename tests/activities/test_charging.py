"""The charging activities: a pass over many charges, per account, and what it reports of how it went."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr
from temporalio.testing import ActivityEnvironment

from activities import run_watch
from activities.accounts import AccountKeys, Accounts, Credentials
from activities.charge import ChargeActivities
from activities.gateway.stripe_gateway import StripeGateway
from activities.ledger.charges import ChargeLedger
from activities.ledger.control import ControlLedger
from activities.ledger.frozen_plan import PlanTerms
from activities.ledger.runs import RunLedger
from tests.activities.local_limiter import LocalLimiter
from tests.activities.scene import (
    ACCOUNT,
    API_KEY,
    CONFIRM,
    CREATE,
    DECLINING_CARD,
    GOOD_CARD,
    PERIOD,
    RUN_ID,
    Scene,
    fault,
    staged_line,
)
from tests.activities.test_held_runs import states
from tests.ledger.planting import commit_plan
from workflows.contracts import HoldKind, Progress, RunKey, Settling, Slice
from workflows.domain.errors import RefusedToStart
from workflows.domain.keys import Identity

RUN = RunKey(run_id=RUN_ID, account=ACCOUNT.id)
SETTLING = Settling(run_id=RUN_ID, account=ACCOUNT.id)
STUCK = RunKey(run_id="billing-run/acct_stuck/2031-03", account="acct_stuck")


@asynccontextmanager
async def open_activities(
    scene: Scene, *, requests_at_once: int = 16, slices_at_once: int = 2
) -> AsyncIterator[ChargeActivities]:
    """Yield the activities of a process that works for the simulator's account and a connected one."""
    accounts = Accounts(
        AccountKeys(key=SecretStr(API_KEY), api_base=scene.sim.url, connected=frozenset({STUCK.account})),
        open_gateway=lambda credentials: _open_gateway(credentials, requests_at_once),
        limiter_of=lambda _: LocalLimiter(10_000),
        requests_at_once=requests_at_once,
        slices_at_once=slices_at_once,
    )
    try:
        yield ChargeActivities(
            ledger=ChargeLedger(scene.pool), accounts=accounts, control=ControlLedger(scene.pool)
        )
    finally:
        await accounts.close()


def _open_gateway(credentials: Credentials, connections: int) -> StripeGateway:
    return StripeGateway(
        api_key=credentials.api_key.get_secret_value(),
        api_base=credentials.api_base,
        connections=connections,
    )


async def charge_slice(scene: Scene, run: RunKey = RUN) -> Progress:
    """Do what one attempt of a slice does, in a process of its own."""
    async with open_activities(scene) as activities:
        return await run_slice(activities, run)


async def run_slice(activities: ChargeActivities, run: RunKey = RUN) -> Progress:
    """Run the first slice of a run as an activity."""
    return await ActivityEnvironment().run(activities.charge_slice, Slice(run=run, slice_no=0))


async def settle_due(scene: Scene) -> Progress:
    """Do what one attempt of a settling pass does."""
    async with open_activities(scene) as activities:
        return await ActivityEnvironment().run(activities.settle_due, SETTLING)


async def plan_for(scene: Scene, run: RunKey, cards: Sequence[str]) -> None:
    """Plan one charge per card for another account's run."""
    lines = [
        staged_line(number, card)._replace(
            charge_id=Identity.of(run.account, f"cus_{number}", PERIOD, "base").charge_id
        )
        for number, card in enumerate(cards, start=1)
    ]
    for line in lines:
        scene.sim.seed(line.customer, line.payment_method or GOOD_CARD, account=run.account)
    await RunLedger(scene.pool).lock(
        run.run_id,
        account=run.account,
        period=PERIOD,
        owner="execution-2",
        source="lines.csv",
        source_sha256="0" * 64,
        started_by="tests",
    )
    terms = PlanTerms(run_id=run.run_id, account=run.account, period=PERIOD, slice_lines=500)
    await commit_plan(scene.pool, terms, lines)


async def test_a_slice_charges_everybody(scene: Scene) -> None:
    """Claimed, carried at once, and counted."""
    await scene.plan([GOOD_CARD] * 30)
    assert await charge_slice(scene) == Progress(settled=30)
    assert await charge_slice(scene) == Progress()
    assert len(scene.sim.movements) == 30
    await scene.audit()


async def test_a_held_run_reports_what_was_left(scene: Scene) -> None:
    """Of a slice: what waits for its first sends. Of a settling pass: nothing is claimed for that."""
    await scene.plan([GOOD_CARD] * 5)
    await scene.pause()
    assert await charge_slice(scene) == Progress(held=5)
    assert await settle_due(scene) == Progress()
    assert len(scene.posts) == 0
    await scene.resume()
    assert await charge_slice(scene) == Progress(settled=5)


async def test_what_is_in_flight_settles_before_hundreds_that_are_held(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A settling pass of a held run takes what is in flight, however much else is due."""
    monkeypatch.setattr("activities.charge.DUE_BATCH_MAX", 2)
    await scene.plan([GOOD_CARD] * 10)
    a = scene.worker()
    last = max(await a.claim(), key=lambda charge: charge.charge_id)
    await a.intend(last, CREATE)
    await scene.pause()
    assert await settle_due(scene) == Progress(held=1)
    assert (await scene.charge(last.charge_id)).payment_intent is not None


async def test_a_pause_is_seen_in_the_middle_of_a_slice(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in flight is finished, the rest left as it is; both together are the slice."""
    monkeypatch.setattr(run_watch, "POLL_SECONDS", 0.01)
    await scene.plan([GOOD_CARD] * 100)
    scene.sim.change(latency_ms=10)
    working = asyncio.create_task(charge_slice(scene))
    async with asyncio.timeout(10):
        while len(scene.posts) < 30:  # noqa: ASYNC110 - the journal has no event to wait for
            await asyncio.sleep(0.005)
    await scene.pause()
    begun = await scene.pool.fetchval("SELECT count(*) FROM keys")
    progress = await working
    assert progress.settled + progress.held == 100
    assert progress.held > 0
    assert (progress.deferred, progress.halted) == (0, None)
    assert await scene.pool.fetchval("SELECT count(*) FROM keys") == begun
    assert set(await states(scene)) <= {"succeeded", "prepared", "planned"}
    await scene.resume()
    assert await charge_slice(scene) == Progress(settled=progress.held)
    await scene.audit()


async def test_a_cancel_is_seen_in_the_middle_of_a_slice(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same pass goes over to canceling: every charge of the slice ends in it."""
    monkeypatch.setattr(run_watch, "POLL_SECONDS", 0.01)
    await scene.plan([GOOD_CARD] * 100)
    scene.sim.change(latency_ms=10)
    working = asyncio.create_task(charge_slice(scene))
    async with asyncio.timeout(10):
        while len(scene.posts) < 30:  # noqa: ASYNC110 - the journal has no event to wait for
            await asyncio.sleep(0.005)
    await scene.cancel()
    assert await working == Progress(settled=100)
    assert set(await states(scene)) <= {"succeeded", "canceled"}
    assert await scene.open_at_stripe() == []
    await scene.audit()


@pytest.mark.parametrize("way", [charge_slice, settle_due], ids=["slice", "settling"])
async def test_a_canceled_run_needs_no_stripe_for_what_was_only_planned(scene: Scene, way: Any) -> None:
    """All in one statement, whether or not this process has credentials for the account."""
    await scene.plan([GOOD_CARD] * 20)
    await scene.cancel()
    scene.sim.change(revoked=True)
    assert await way(scene) == Progress(settled=20)
    assert len(scene.sim.requests) == 0
    assert await states(scene) == ["canceled"] * 20


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (401, "api_key_expired", HoldKind.BREAKER, "(HTTP 401)"),
        (403, "vault_key_revoked", HoldKind.BREAKER, "(vault_key_revoked)"),
        (429, "spend_cap_exceeded", HoldKind.CAP, "cap"),
    ],
)
async def test_a_breaker_says_what_holds_the_run(
    scene: Scene, status: int, code: str, kind: HoldKind, words: str
) -> None:
    """Credentials and the cap stop the pass at once, and nobody but a person lets it go on."""
    await scene.plan([GOOD_CARD] * 20)
    scene.fault("error", status=status, code=code, operation=CREATE)
    progress = await charge_slice(scene)
    assert (progress.halted_kind, progress.closes_by_itself) == (kind, False)
    assert words in (progress.halted or "")
    assert progress.settled == 0


async def test_a_breaker_that_opened_on_silence_may_close_by_itself(scene: Scene) -> None:
    """A storm passes; that nobody was charged twice in it is the ledger's doing."""
    await scene.plan([GOOD_CARD] * 40)
    scene.fault("drop", operation=CREATE)
    progress = await charge_slice(scene)
    assert (progress.halted_kind, progress.closes_by_itself) == (HoldKind.BREAKER, True)
    assert "no answer of use" in (progress.halted or "")
    scene.clear_faults()
    await settle_due(scene)
    await scene.audit()


async def test_a_spike_of_declines_stops_before_everybody_is_burnt(scene: Scene) -> None:
    """Of 200 customers whose cards all fail, about as many as make it a rate are tried."""
    await scene.plan([DECLINING_CARD] * 200)
    progress = await charge_slice(scene)
    assert (progress.halted_kind, progress.closes_by_itself) == (HoldKind.BREAKER, False)
    assert "declined or refused" in (progress.halted or "")
    assert 50 <= progress.settled <= 50 + 2 * 16


async def test_declines_that_somebody_has_accepted_stop_nothing(scene: Scene) -> None:
    """Whoever resumes such a run has seen them, and is not asked again fifty charges later."""
    await scene.plan([DECLINING_CARD] * 60)
    async with open_activities(scene) as activities:
        work = Slice(run=RUN, slice_no=0, declines_accepted=True)
        assert await ActivityEnvironment().run(activities.charge_slice, work) == Progress(settled=60)


@pytest.mark.parametrize("way", [charge_slice, settle_due], ids=["slice", "settling"])
async def test_a_key_that_stripe_refuses_holds_the_run_before_anything_is_claimed(
    scene: Scene, way: Any
) -> None:
    """A fresh worker asks first whose its key is: a refusal waits for a person, and retries tell nobody."""
    await scene.plan()
    scene.sim.change(revoked=True)
    progress = await way(scene)
    assert (progress.halted_kind, progress.closes_by_itself) == (HoldKind.BREAKER, False)
    assert "HTTP 401" in (progress.halted or "")
    assert (await scene.charge()).fence == 0


async def test_an_account_that_is_stuck_holds_up_nobody_else(scene: Scene) -> None:
    """Its requests hang: the other account's slice takes no longer for it, in the same process."""
    await scene.plan([GOOD_CARD] * 40)
    await plan_for(scene, STUCK, [GOOD_CARD] * 40)
    scene.sim.set_faults(fault("hold", seconds=8, match={"account": STUCK.account}))
    async with open_activities(scene, requests_at_once=8) as activities:
        stuck = asyncio.create_task(run_slice(activities, STUCK))
        async with asyncio.timeout(5):
            while len(scene.sim.requests) < 8:  # noqa: ASYNC110 - the journal has no event to wait for
                await asyncio.sleep(0.005)
        began = time.monotonic()
        assert await run_slice(activities) == Progress(settled=40)
        assert time.monotonic() - began < 5
        assert not stuck.done()
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)


async def test_without_credentials_for_the_account_nothing_is_claimed(scene: Scene) -> None:
    """Another worker may have them: the charges stay free for it."""
    await scene.plan()
    stranger = RunKey(run_id=RUN_ID, account="acct_stranger")
    with pytest.raises(RefusedToStart):
        await charge_slice(scene, stranger)
    assert (await scene.charge()).fence == 0


async def test_a_confirm_of_a_held_runs_slice_is_counted_where_it_ended(scene: Scene) -> None:
    """In flight with its answer lost when the pause came: found paid by the slice's next attempt."""
    await scene.plan()
    a = scene.worker()
    prepared = (await a.sender.send_first(await a.claim_one(), CREATE, reason="planned")).charge
    await a.transmit(await a.intend(prepared, CONFIRM))
    await scene.pause()
    assert await charge_slice(scene) == Progress(settled=1)
    await scene.audit()
