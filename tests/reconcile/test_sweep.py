"""The orphan sweep: what carries a charge's identity and is not its own is canceled, where that is safe."""

import asyncio
import json
from dataclasses import replace

import pytest
from pydantic import SecretStr

from activities.accounts import AccountKeys, Accounts, Credentials
from activities.crash_points import CrashPoint
from activities.ledger.vault import KeyUse
from activities.send import Sender
from activities.sweep import SweepEnd
from activities.vault import CHARGING, RECONCILING
from tests.activities.dashboard import post
from tests.activities.local_limiter import LocalLimiter
from tests.activities.scene import (
    ACCOUNT,
    API_KEY,
    CANCEL,
    CONFIRM,
    CREATE,
    DECLINING_CARD,
    RATE_PER_SECOND,
    Scene,
    create_body,
    fault,
    seconds,
)
from tests.reconcile.orphans import at_stripe, cancels, leave_orphan, sweep, sweep_and_die
from tests.web.mailroom import Mailroom, open_gateway
from workflows.contracts import RunKey
from workflows.domain.answer import METADATA_CHARGE, Answer
from workflows.domain.charge import Charge, Intent
from workflows.domain.errors import RefusedToStart, StaleWrite
from workflows.domain.keys import IdempotencyKey
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS


async def confirm_on_session(scene: Scene, payment_intent: str, card: str) -> None:
    """Let the customer pay a PaymentIntent by themselves."""
    await post(scene.sim.url, f"/v1/payment_intents/{payment_intent}/confirm", payment_method=card)


async def test_an_orphan_of_a_paid_charge_is_canceled_and_the_charge_stays_as_it_is(mail: Mailroom) -> None:
    """One key, named after the PaymentIntent; the row only counts it; Stripe shows it canceled."""
    scene = mail.scene
    left = await leave_orphan(scene)
    await scene.work()
    paid = await scene.charge()
    assert paid.state is State.SUCCEEDED
    swept = await sweep(mail, paid, left.orphan)
    assert (swept.end, swept.requests) == (SweepEnd.CANCELED, 2)
    assert await cancels(scene) == [(f"cancel_{left.orphan}_v1", 1, "proved")]
    after = await scene.charge()
    assert (after.state, after.payment_intent, after.fence) == (paid.state, paid.payment_intent, paid.fence)
    assert (await at_stripe(scene, left.orphan)).status == "canceled"
    assert (await at_stripe(scene, paid.payment_intent or "")).status == "succeeded"
    again = await sweep(mail, paid, left.orphan)
    assert (again.end, again.requests) == (SweepEnd.CANCELED, 1)
    assert await scene.alarms() == 0
    await scene.audit()


async def test_the_orphan_of_a_prepared_charge_is_canceled_while_its_own_is_paid_afterwards(
    mail: Mailroom,
) -> None:
    """A sweep takes no fence, so it stops no run: the charge goes on with its own PaymentIntent."""
    scene = mail.scene
    left = await leave_orphan(scene)
    a = scene.worker()
    mine = await a.claim_one()
    assert (await sweep(mail, left.charge, left.orphan)).end is SweepEnd.CANCELED
    sent = await a.sender.send_first(mine, CONFIRM, reason="prepared")
    assert sent.charge.state is State.SUCCEEDED
    await scene.audit()


async def test_the_charge_s_own_payment_intent_is_never_swept(mail: Mailroom) -> None:
    """Prepared, it would be the customer's only one; declined, its run may confirm it again."""
    scene = mail.scene
    charge = await scene.prepare(scene.worker(), card=DECLINING_CARD)
    own = charge.payment_intent or ""
    for state in (State.PREPARED, State.DECLINED):
        assert (await scene.charge()).state is state
        swept = await sweep(mail, charge, own)
        assert (swept.end, swept.reason) == (SweepEnd.NOT_NOW, f"{own} is the charge's own by now")
        await scene.work()
    assert await cancels(scene) == []
    assert (await scene.charge()).cancel_version == 0


async def stand(scene: Scene, state: State) -> Charge:
    """Bring the only charge into a state in which it may be about to adopt a PaymentIntent."""
    a = scene.worker()
    if state is State.PLANNED:
        await scene.plan()
    elif state is State.CREATING:
        await scene.plan()
        await a.intend(await a.claim_one(), CREATE)
    else:
        await a.intend(await scene.prepare(a), CANCEL)
    charge = await scene.charge()
    assert charge.state is state
    return charge


async def make_stray(scene: Scene, charge: Charge) -> str:
    """Make a PaymentIntent of the charge's identity that the ledger knows nothing of."""
    answer = await scene.worker().gateway.post(
        CREATE,
        account=ACCOUNT,
        path="/v1/payment_intents",
        parameters=json.loads(create_body(charge, amount_minor=charge.amount_minor, version=9)),
        key=IdempotencyKey("create_of_another_ledger"),
    )
    assert answer.payment_intent is not None
    return answer.payment_intent.id


@pytest.mark.parametrize("state", [State.PLANNED, State.CREATING, State.CANCELING])
async def test_nothing_is_swept_while_the_charge_may_be_about_to_adopt_it(
    mail: Mailroom, state: State
) -> None:
    """The run itself lists what carries the identity before a new create, and cancels it (I11)."""
    charge = await stand(mail.scene, state)
    stray = await make_stray(mail.scene, charge)
    before = await cancels(mail.scene)
    swept = await sweep(mail, charge, stray)
    assert swept.end is SweepEnd.NOT_NOW
    assert swept.reason == f"the charge is {state}: it may be about to adopt {stray}"
    assert await cancels(mail.scene) == before
    assert await mail.scene.charge() == charge
    assert (await at_stripe(mail.scene, stray)).status == "requires_confirmation"


async def test_what_is_of_another_identity_or_of_no_charge_is_left_alone(mail: Mailroom) -> None:
    """Somebody else's PaymentIntent, an id that Stripe does not know, a charge that the ledger does not."""
    scene = mail.scene
    left = await leave_orphan(scene)
    stranger = "0" * 32
    swept = await sweep(mail, replace(left.charge, charge_id=stranger), left.orphan)
    assert (swept.end, swept.reason) == (SweepEnd.NOT_NOW, f"the ledger has no charge {stranger}")
    await post(
        scene.sim.url, f"/v1/payment_intents/{left.orphan}", **{f"metadata[{METADATA_CHARGE}]": stranger}
    )
    swept = await sweep(mail, left.charge, left.orphan)
    assert (swept.end, swept.reason) == (
        SweepEnd.NOT_NOW,
        f"{left.orphan} does not carry this charge's identity",
    )
    swept = await sweep(mail, left.charge, "pi_nobody_has_this")
    assert swept.end is SweepEnd.NOT_NOW
    assert "404" in swept.reason
    assert await cancels(scene) == []


async def test_an_authorization_is_for_people(mail: Mailroom) -> None:
    """Somebody confirmed it, so it is not for a sweep to give up what it holds."""
    scene = mail.scene
    charge = await scene.prepare(scene.worker())
    body = {**json.loads(create_body(charge, amount_minor=100, version=9)), "capture_method": "manual"}
    made = await scene.worker().gateway.post(
        CREATE,
        account=ACCOUNT,
        path="/v1/payment_intents",
        parameters=body,
        key=IdempotencyKey("create_held"),
    )
    assert made.payment_intent is not None
    await post(
        scene.sim.url,
        f"/v1/payment_intents/{made.payment_intent.id}/confirm",
        payment_method=charge.payment_method or "",
        off_session="true",
    )
    swept = await sweep(mail, charge, made.payment_intent.id)
    assert swept.end is SweepEnd.NOT_NOW
    assert "requires_capture" in swept.reason
    assert await cancels(scene) == []


CANCEL_POINTS = [point for point in CrashPoint if point.value.startswith("cancel_")]


@pytest.mark.parametrize("point", CANCEL_POINTS)
async def test_a_sweep_killed_at_any_moment_is_finished_by_the_next_one(
    mail: Mailroom, point: CrashPoint
) -> None:
    """The next one looks first, and sends the same key and body again where it is still to be canceled."""
    scene = mail.scene
    left = await leave_orphan(scene)
    await sweep_and_die(mail, left.charge, left.orphan, point)
    assert (await sweep(mail, left.charge, left.orphan)).end is SweepEnd.CANCELED
    assert (await at_stripe(scene, left.orphan)).status == "canceled"
    keys = {key for key, _, _ in await cancels(scene)}
    assert keys == {f"cancel_{left.orphan}_v1"}
    shown = await scene.pool.fetchval("SELECT is_shown_canceled($1, $2)", left.charge.charge_id, left.orphan)
    assert shown, "who creates another one asks the journal (I11)"
    assert (await scene.charge()).payment_intent == left.charge.payment_intent
    await scene.audit()


async def test_an_unanswered_sweep_is_sent_again_under_its_key_and_past_its_window_under_the_next(
    mail: Mailroom,
) -> None:
    """Same key inside the window, nothing in the margin, version 2 past it and after a lookup (I4, I5)."""
    scene = mail.scene
    left = await leave_orphan(scene)
    began, key = WINDOW_SECONDS + 60, f"cancel_{left.orphan}_v"
    scene.fault("drop", operation=CANCEL)
    assert (await sweep(mail, left.charge, left.orphan)).end is SweepEnd.UNKNOWN
    await scene.set_age(began + seconds("23:40"))
    assert (await sweep(mail, left.charge, left.orphan)).end is SweepEnd.UNKNOWN
    await scene.set_age(began + seconds("23:50"))
    swept = await sweep(mail, left.charge, left.orphan)
    assert (swept.end, swept.reason) == (SweepEnd.NOT_NOW, "too close to the window's end to resend")
    await scene.set_age(began + WINDOW_SECONDS)
    scene.sim.set_faults(fault("error", status=500, match={"method": "GET"}))
    assert (await sweep(mail, left.charge, left.orphan)).end is SweepEnd.NOT_NOW
    assert await cancels(scene) == [(f"{key}1", 1, "unknown"), (f"{key}1", 2, "unknown")]
    scene.clear_faults()
    assert (await sweep(mail, left.charge, left.orphan)).end is SweepEnd.CANCELED
    assert (await cancels(scene))[2:] == [(f"{key}2", 1, "proved")]
    reason = await scene.pool.fetchval("SELECT reason FROM keys WHERE key = $1", f"{key}2")
    assert "the window has passed and a later lookup did not settle it" in reason
    await scene.audit()


async def test_a_cancel_that_was_executed_without_an_answer_is_seen_by_the_next_look(mail: Mailroom) -> None:
    """Nothing is sent again: Stripe shows it canceled, and that is put on record once."""
    scene = mail.scene
    left = await leave_orphan(scene)
    scene.fault("drop", place="after", operation=CANCEL)
    assert (await sweep(mail, left.charge, left.orphan)).end is SweepEnd.UNKNOWN
    scene.clear_faults()
    for _ in range(2):
        assert (await sweep(mail, left.charge, left.orphan)).end is SweepEnd.CANCELED
    assert len(await cancels(scene)) == 1
    assert await scene.decisions() == [("swept", False)]


@pytest.mark.parametrize("ends_as", [State.REVIEW, State.SUCCEEDED])
async def test_an_orphan_that_was_paid_before_anybody_looked_is_recorded_with_an_alarm(
    mail: Mailroom, ends_as: State
) -> None:
    """Beside a paid charge it is a duplicate; instead of it, nothing more may be sent: review."""
    scene = mail.scene
    left = await leave_orphan(scene)
    if ends_as is State.SUCCEEDED:
        await scene.work()
    await confirm_on_session(scene, left.orphan, left.charge.payment_method or "")
    swept = await sweep(mail, left.charge, left.orphan)
    assert swept.end is SweepEnd.PAID
    assert await cancels(scene) == []
    assert await scene.alarms() == 1
    assert (await scene.charge()).state is ends_as


async def test_an_orphan_that_is_paid_while_its_cancel_is_on_its_way_is_recorded_with_an_alarm(
    mail: Mailroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancel gets 400, and goes by the status in it (trace T1): paid beside the charge's own."""
    scene = mail.scene
    left = await leave_orphan(scene)
    await scene.work()
    transmit = Sender._transmit

    async def pay_first(sender: Sender, intent: Intent, leave_by: float) -> Answer:
        await confirm_on_session(scene, left.orphan, left.charge.payment_method or "")
        return await transmit(sender, intent, leave_by)

    monkeypatch.setattr(Sender, "_transmit", pay_first)
    swept = await sweep(mail, left.charge, left.orphan)
    assert swept.end is SweepEnd.PAID
    assert "DUPLICATE" in swept.reason
    assert await scene.decisions() == [("duplicate", True)]
    charge = await scene.charge()
    assert (charge.state, charge.payment_intent) == (State.SUCCEEDED, left.charge.payment_intent)
    assert (await cancels(scene))[0][2] == "proved"


async def test_two_sweepers_at_once_share_one_key(mail: Mailroom) -> None:
    """Whoever comes second finds the first one's key, and sends the same once more or sees it canceled."""
    scene = mail.scene
    left = await leave_orphan(scene)
    swept = await asyncio.gather(*(sweep(mail, left.charge, left.orphan) for _ in range(6)))
    ends = {one.end for one in swept}
    assert SweepEnd.CANCELED in ends
    assert ends <= {SweepEnd.CANCELED, SweepEnd.UNKNOWN}
    assert {key for key, _, _ in await cancels(scene)} == {f"cancel_{left.orphan}_v1"}
    assert (await scene.charge()).cancel_version == 1
    await scene.audit()


async def test_a_late_sweeper_that_was_frozen_after_its_intent_does_no_harm(mail: Mailroom) -> None:
    """A freezes with its intent committed, B sweeps; A's cancel then meets a canceled PaymentIntent."""
    scene = mail.scene
    left = await leave_orphan(scene)
    await sweep_and_die(mail, left.charge, left.orphan, CrashPoint.CANCEL_AFTER_INTENT)
    assert (await sweep(mail, left.charge, left.orphan)).end is SweepEnd.CANCELED
    late = await scene.worker().gateway.post(
        CANCEL,
        account=ACCOUNT,
        path=f"/v1/payment_intents/{left.orphan}/cancel",
        parameters={"cancellation_reason": "abandoned"},
        key=IdempotencyKey(f"cancel_{left.orphan}_v1"),
    )
    assert late.payment_intent is not None
    assert late.payment_intent.status == "canceled"
    await scene.work()
    assert (await scene.charge()).state is State.SUCCEEDED


async def test_t12_cancels_of_a_charge_are_counted_by_one_number_whichever_payment_intent_they_are_of(
    mail: Mailroom,
) -> None:
    """Own v1, the orphan's v2, own v3: which waits for the window of own v1, not for the orphan's."""
    scene = mail.scene
    left = await leave_orphan(scene)
    a = scene.worker()
    await a.intend(await a.claim_one(), CANCEL)
    canceling = await scene.charge()
    declined = await a.ledger.settle(
        canceling,
        State.DECLINED,
        payment_intent=left.charge.payment_intent,
        latest_charge=None,
        reason="scripted",
    )
    await scene.set_age(WINDOW_SECONDS + 60 + seconds("12:00"))
    assert (await sweep(mail, declined, left.orphan)).end is SweepEnd.CANCELED
    declined = await scene.charge()
    with pytest.raises(StaleWrite):
        await a.intend(declined, CANCEL)
    await scene.set_age(2 * WINDOW_SECONDS + 60)
    await a.intend(declined, CANCEL)
    own = left.charge.payment_intent
    assert [key for key, _, _ in await cancels(scene)] == [
        f"cancel_{own}_v1",
        f"cancel_{left.orphan}_v2",
        f"cancel_{own}_v3",
    ]


async def test_a_canceled_run_cancels_its_own_payment_intent_after_a_sweep(mail: Mailroom) -> None:
    """The run's cancel goes on at the next version, at once: the sweep's key was another PaymentIntent's."""
    scene = mail.scene
    left = await leave_orphan(scene)
    await sweep(mail, left.charge, left.orphan)
    await scene.cancel()
    await scene.work()
    assert (await scene.charge()).state is State.CANCELED
    assert [key for key, _, _ in await cancels(scene)] == [
        f"cancel_{left.orphan}_v1",
        f"cancel_{left.charge.payment_intent}_v2",
    ]
    await scene.audit()


class KeysWithout(AccountKeys):
    """Keys of runs, of which one use has none."""

    async def credentials_for(self, run: RunKey, use: KeyUse = CHARGING) -> Credentials:
        """Return the real key, but for reconciling."""
        if use is RECONCILING:
            raise RefusedToStart(f"run {run.run_id} may not have a vault key for {use.name} now")
        return await super().credentials_for(run, use)


async def test_without_a_key_of_the_run_that_may_cancel_nothing_is_intended(mail: Mailroom) -> None:
    """Not every phase of a run has one: the reason is said, and no version is spent."""
    scene = mail.scene
    left = await leave_orphan(scene)
    accounts = Accounts(
        KeysWithout(key=SecretStr(API_KEY), api_base=scene.sim.url),
        open_gateway=open_gateway,
        limiter_of=lambda _: LocalLimiter(RATE_PER_SECOND),
        requests_at_once=4,
        slices_at_once=1,
    )
    try:
        swept = await sweep(mail, left.charge, left.orphan, accounts=accounts)
    finally:
        await accounts.close()
    assert swept.end is SweepEnd.NOT_NOW
    assert "may not have a vault key for reconciling" in swept.reason
    assert (await scene.charge()).cancel_version == 0


@pytest.mark.parametrize(("status", "told"), [(401, "not executed"), (429, "not executed")])
async def test_a_cancel_that_was_not_executed_is_for_later(mail: Mailroom, status: int, told: str) -> None:
    """Refused credentials and a limit did nothing: the same key goes out with the next sweep."""
    scene = mail.scene
    left = await leave_orphan(scene)
    scene.fault("error", status=status, operation=CANCEL)
    swept = await sweep(mail, left.charge, left.orphan)
    assert swept.end is SweepEnd.NOT_NOW
    assert told in swept.reason
    scene.clear_faults()
    assert (await sweep(mail, left.charge, left.orphan)).end is SweepEnd.CANCELED
    assert [number for _, number, _ in await cancels(scene)] == [1, 2]


async def test_with_clocks_too_far_apart_no_first_cancel_is_sent(mail: Mailroom) -> None:
    """The ledger's clock is two minutes ahead of Stripe's (I10)."""
    scene = mail.scene
    left = await leave_orphan(scene)
    await scene.set_age(WINDOW_SECONDS + 60, ledger_ahead_seconds=120)
    swept = await sweep(mail, left.charge, left.orphan)
    assert swept.end is SweepEnd.NOT_NOW
    assert await cancels(scene) == []
