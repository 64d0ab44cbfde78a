"""Charges in flight, settled by whoever reconciles: by a key that may send, or by looking alone."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from pydantic import SecretStr

from activities.accounts import AccountKeys, Accounts, Credentials
from activities.crash_points import CrashPoint, install
from activities.ledger.vault import KeyUse
from activities.settle_for_reconcile import QUIET_SECONDS, Flight, FlightEnd, Flights, settle_in_flight
from activities.vault import CHARGING, RECONCILING, RESENDING
from tests.activities.dashboard import post
from tests.activities.local_limiter import LocalLimiter
from tests.activities.scene import (
    API_KEY,
    CANCEL,
    CONFIRM,
    CREATE,
    DECLINING_CARD,
    GOOD_CARD,
    RATE_PER_SECOND,
    RUN_ID,
    Scene,
    fault,
    seconds,
)
from tests.reconcile.orphans import Killed, parts_of
from tests.web.mailroom import Mailroom, open_gateway
from workflows.contracts import RunKey
from workflows.domain.charge import Intent
from workflows.domain.errors import RefusedToStart, StaleWrite
from workflows.domain.keys import Operation
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS

QUIET = QUIET_SECONDS + 1


@dataclass(frozen=True, kw_only=True)
class KeysFor(AccountKeys):
    """A proxy's keys: a run has them for some uses only."""

    allowed: frozenset[str]

    @property
    def through_proxy(self) -> bool:
        """Each run has keys of its own."""
        return True

    async def credentials_for(self, run: RunKey, use: KeyUse = CHARGING) -> Credentials:
        """Return the key, for a use that the run has one for."""
        if use.name not in self.allowed:
            raise RefusedToStart(f"nobody has approved a vault key for {use.name} of run {run.run_id}")
        return await super().credentials_for(run, use)


@asynccontextmanager
async def proxied(scene: Scene, *uses: KeyUse) -> AsyncIterator[Accounts]:
    """Open accounts whose runs have keys for these uses alone."""
    allowed = frozenset(use.name for use in uses)
    keys = KeysFor(key=SecretStr(API_KEY), api_base=scene.sim.url, allowed=allowed)
    accounts = Accounts(
        keys,
        open_gateway=open_gateway,
        limiter_of=lambda _: LocalLimiter(RATE_PER_SECOND),
        requests_at_once=8,
        slices_at_once=1,
    )
    try:
        yield accounts
    finally:
        await accounts.close()


async def settle(
    mail: Mailroom, *, accounts: Accounts | None = None, abandoned_runs: Collection[str] = ()
) -> Flights:
    """Settle whatever of the run is in flight."""
    rows = await mail.scene.pool.fetch("SELECT charge_id FROM charges ORDER BY charge_id")
    return await settle_in_flight(
        mail.scene.pool,
        accounts or mail.accounts,
        await parts_of(mail.accounts),
        [row["charge_id"] for row in rows],
        abandoned_runs=abandoned_runs,
    )


async def settle_one(
    mail: Mailroom, *, accounts: Accounts | None = None, abandoned_runs: Collection[str] = ()
) -> Flight:
    """Settle the only charge."""
    [flight] = (await settle(mail, accounts=accounts, abandoned_runs=abandoned_runs)).flights
    return flight


async def leave_in_flight(scene: Scene, operation: Operation, *, card: str = GOOD_CARD) -> Intent:
    """Let A intend an operation and freeze: its request has not left."""
    a = scene.worker()
    if operation is CREATE:
        await scene.plan([card])
        return await a.intend(await a.claim_one(), CREATE)
    return await a.intend(await scene.prepare(a, card=card), operation)


async def fail_run(scene: Scene) -> None:
    """Let the run have ended with charges in flight, as no code of ours leaves it."""
    await scene.owner.execute("UPDATE billing_runs SET phase = 'failed', reason = 'scripted'")


@pytest.mark.parametrize(
    ("operation", "state"),
    [(CREATE, State.PREPARED), (CONFIRM, State.SUCCEEDED), (CANCEL, State.CANCELED)],
    ids=["create", "confirm", "cancel"],
)
async def test_what_never_left_is_sent_again_under_its_key_while_the_run_is_open(
    mail: Mailroom, operation: Operation, state: State
) -> None:
    """A look, the same key once more, and that is all: a prepared charge is its run's to confirm."""
    scene = mail.scene
    intent = await leave_in_flight(scene, operation)
    await scene.set_age(QUIET)
    flight = await settle_one(mail)
    assert (flight.end, (await scene.charge()).state) == (FlightEnd.SETTLED, state)
    assert scene.wire.count(f"{operation} v1") == 1
    assert [number for name, number, _ in await scene.sends() if name == f"{operation} v1"] == [1, 2]
    late = await scene.worker().transmit(intent)
    assert late.payment_intent is not None
    await scene.audit()


async def test_nothing_is_taken_from_under_a_live_slice(mail: Mailroom) -> None:
    """Its newest request is not a minute old, so it may be on its way; a second later it is not."""
    scene = mail.scene
    await leave_in_flight(scene, CONFIRM)
    before, lookups = await scene.charge(), scene.lookups
    await scene.set_age(QUIET_SECONDS - 1)
    flight = await settle_one(mail)
    assert (flight.end, flight.reason) == (FlightEnd.LIVE, "a slice may be at work with it")
    assert await scene.charge() == before
    assert scene.lookups == lookups + 1, "only whose key it is was asked"
    await scene.set_age(QUIET_SECONDS)
    assert (await settle_one(mail)).end is FlightEnd.SETTLED


async def test_of_a_run_that_has_lost_its_workflow_everything_is_taken_at_once(mail: Mailroom) -> None:
    """No slice of it is alive, so there is none to take anything from."""
    await leave_in_flight(mail.scene, CONFIRM)
    assert (await settle_one(mail)).end is FlightEnd.LIVE
    assert (await settle_one(mail, abandoned_runs=[RUN_ID])).end is FlightEnd.SETTLED


async def test_whoever_had_the_charge_before_may_send_nothing_for_it_any_more(mail: Mailroom) -> None:
    """A thaws after the settling has begun: its fence is an older one (I13)."""
    scene = mail.scene
    await leave_in_flight(scene, CONFIRM)
    a = scene.worker()
    mine = await a.claim_one()
    await scene.set_age(QUIET)
    scene.fault("drop", operation=CONFIRM)
    assert (await settle_one(mail)).end is FlightEnd.IN_FLIGHT
    with pytest.raises(StaleWrite):
        await a.intend_again(mine)


async def test_what_was_executed_without_an_answer_is_settled_by_the_look(mail: Mailroom) -> None:
    """Nothing is sent again: Stripe shows that it is paid."""
    scene = mail.scene
    intent = await leave_in_flight(scene, CONFIRM)
    await scene.worker().transmit(intent)
    await scene.set_age(QUIET)
    result = await settle(mail)
    assert (result.count(), result.requests) == ({FlightEnd.SETTLED: 1}, 1)
    assert scene.wire == ["create v1", "confirm v1"]
    assert (await scene.charge()).state is State.SUCCEEDED
    await scene.audit()


async def test_a_charge_that_is_not_in_flight_is_not_touched(mail: Mailroom) -> None:
    """No fence, no request."""
    await mail.scene.prepare(mail.scene.worker())
    before = await mail.scene.charge()
    result = await settle(mail)
    assert (result.flights[0].end, result.requests) == (FlightEnd.SETTLED, 0)
    assert await mail.scene.charge() == before


@pytest.mark.parametrize("executed", ["executed", "not executed"])
async def test_of_a_run_that_has_ended_nothing_is_sent_and_what_stripe_shows_is_recorded(
    mail: Mailroom, executed: str
) -> None:
    """A real key could do it, but the run is not open, and nobody has approved it."""
    scene = mail.scene
    intent = await leave_in_flight(scene, CONFIRM)
    await fail_run(scene)
    if executed == "executed":
        await scene.worker().transmit(intent)
    sent = len(scene.posts)
    flight = await settle_one(mail)
    assert len(scene.posts) == sent
    if executed == "executed":
        assert flight.end is FlightEnd.SETTLED
        assert (await scene.charge()).state is State.SUCCEEDED
    else:
        assert flight.end is FlightEnd.IN_FLIGHT
        assert flight.reason == (
            "a confirm would have to be sent, and may not be: "
            "its run has ended, and nobody has approved that anything is sent"
        )
        assert [number for _, number, _ in await scene.sends()] == [1, 1]


async def test_of_a_run_that_has_ended_a_cancel_in_flight_is_finished(mail: Mailroom) -> None:
    """It moves no money, and the reconciling key may do it."""
    await leave_in_flight(mail.scene, CANCEL)
    await fail_run(mail.scene)
    assert (await settle_one(mail)).end is FlightEnd.SETTLED
    assert (await mail.scene.charge()).state is State.CANCELED


async def test_without_a_vault_key_stripe_is_only_asked(mail: Mailroom) -> None:
    """Its run is open, but its key is gone: why is said, nothing is sent, and a create is still found."""
    scene = mail.scene
    intent = await leave_in_flight(scene, CREATE)
    await scene.set_age(QUIET)
    async with proxied(scene, RECONCILING) as accounts:
        flight = await settle_one(mail, accounts=accounts)
        assert flight.end is FlightEnd.IN_FLIGHT
        assert "nobody has approved a vault key for charging" in flight.reason
        assert "nobody has approved a vault key for resending" in flight.reason
        assert scene.wire == []
        await scene.worker().transmit(intent)
        assert (await settle_one(mail, accounts=accounts)).end is FlightEnd.SETTLED
    assert (await scene.charge()).state is State.PREPARED
    assert scene.wire == ["create v1"]


@pytest.mark.parametrize("phase", ["open", "failed"])
async def test_a_key_that_was_approved_for_resending_sends(mail: Mailroom, phase: str) -> None:
    """In an open run whose charging key is gone, and in one that has ended."""
    scene = mail.scene
    await leave_in_flight(scene, CONFIRM)
    if phase == "failed":
        await fail_run(scene)
    await scene.set_age(QUIET)
    async with proxied(scene, RESENDING) as accounts:
        assert (await settle_one(mail, accounts=accounts)).end is FlightEnd.SETTLED
    assert (await scene.charge()).state is State.SUCCEEDED
    await scene.audit()


async def test_a_key_that_is_refused_is_tried_once_and_then_stripe_is_only_asked(mail: Mailroom) -> None:
    """Of twenty charges as many as are worked on at once may meet the refusal; the rest are looked up."""
    scene = mail.scene
    await scene.plan([GOOD_CARD] * 20)
    a = scene.worker()
    for charge in await a.claim():
        sent = await a.sender.send_first(charge, CREATE, reason="planned")
        await a.intend(sent.charge, CONFIRM)
    await scene.set_age(QUIET)
    scene.fault("error", status=401, operation=CONFIRM)
    result = await settle(mail)
    assert result.count() == {FlightEnd.IN_FLIGHT: 20}
    assert all("its key for charging was refused" in one.reason for one in result.flights)
    assert scene.wire.count("confirm v1") <= 8
    scene.clear_faults()
    await scene.set_age(2 * QUIET)
    assert (await settle(mail)).count() == {FlightEnd.SETTLED: 20}
    await scene.audit()


async def test_where_lookups_are_refused_as_well_nothing_is_concluded(mail: Mailroom) -> None:
    """401 to everything."""
    scene = mail.scene
    await leave_in_flight(scene, CONFIRM)
    await parts_of(mail.accounts)
    await scene.set_age(QUIET)
    scene.sim.set_faults(
        fault("error", status=401), fault("error", name="reads", status=401, match={"method": "GET"})
    )
    flight = await settle_one(mail)
    assert flight.end is FlightEnd.AWAY
    assert (await scene.charge()).state is State.CONFIRMING
    assert scene.wire == ["create v1"]


async def test_within_the_margin_a_charge_waits_and_past_the_window_its_version_goes_up(
    mail: Mailroom,
) -> None:
    """The window rule is the settle function's: reconciling has no other one (I4, I5)."""
    scene = mail.scene
    await leave_in_flight(scene, CONFIRM)
    await scene.set_age(seconds("23:50"))
    flight = await settle_one(mail)
    assert (flight.end, flight.wait_seconds) == (FlightEnd.IN_FLIGHT, seconds("0:10"))
    assert scene.wire == ["create v1"]
    await scene.set_age(WINDOW_SECONDS)
    assert (await settle_one(mail)).end is FlightEnd.SETTLED
    assert scene.wire == ["create v1", "confirm v2"]
    await scene.audit()


async def test_of_a_held_run_the_same_key_may_go_out_and_no_new_version(mail: Mailroom) -> None:
    """A pause stops first sends: what only a next version could move is left for after it."""
    scene = mail.scene
    await leave_in_flight(scene, CONFIRM)
    await scene.pause()
    await scene.set_age(QUIET)
    scene.fault("drop", operation=CONFIRM)
    assert (await settle_one(mail)).end is FlightEnd.IN_FLIGHT
    scene.clear_faults()
    await scene.set_age(WINDOW_SECONDS)
    flight = await settle_one(mail)
    assert flight.end is FlightEnd.IN_FLIGHT
    assert "the run is held: no new version" in flight.reason
    assert scene.wire == ["create v1", "confirm v1"]
    await scene.resume()
    assert (await settle_one(mail)).end is FlightEnd.SETTLED
    await scene.audit()


async def test_of_a_run_that_is_being_canceled_nothing_is_created_any_more(mail: Mailroom) -> None:
    """Past its window Stripe has nothing of it: canceled, and nothing was sent."""
    scene = mail.scene
    await leave_in_flight(scene, CREATE)
    await scene.cancel()
    await scene.set_age(WINDOW_SECONDS)
    assert (await settle_one(mail)).end is FlightEnd.SETTLED
    assert ((await scene.charge()).state, scene.wire) == (State.CANCELED, [])


async def test_a_charge_that_was_paid_twice_is_settled_with_an_alarm(mail: Mailroom) -> None:
    """Both answers of a create are lost, its key pruned in between, and the customer pays both on session."""
    scene = mail.scene
    intent = await leave_in_flight(scene, CREATE)
    a = scene.worker()
    first = await a.transmit(intent)
    await scene.set_age(WINDOW_SECONDS + 60)
    second = await a.transmit(intent)
    for answer in (first, second):
        assert answer.payment_intent is not None
        await post(
            scene.sim.url,
            f"/v1/payment_intents/{answer.payment_intent.id}/confirm",
            payment_method=intent.charge.payment_method or "",
        )
    flight = await settle_one(mail)
    assert flight.end is FlightEnd.SETTLED
    assert "DUPLICATE: 2 PaymentIntents" in flight.reason
    assert await scene.decisions() == [("settled_by_lookup", True)]
    assert (await scene.charge()).state is State.SUCCEEDED


@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.SETTLE_AFTER_LOOKUP,
        CrashPoint.CONFIRM_AFTER_INTENT,
        CrashPoint.CONFIRM_AFTER_REQUEST,
        CrashPoint.CONFIRM_AFTER_RECORD,
    ],
)
async def test_settling_that_was_killed_is_finished_by_the_next(mail: Mailroom, point: CrashPoint) -> None:
    """Whatever was left behind is what settling is for."""
    scene = mail.scene
    await leave_in_flight(scene, CONFIRM)
    await scene.set_age(QUIET)

    def die(reached: object) -> None:
        if reached is point:
            raise Killed

    install(die)
    try:
        with pytest.RaisesGroup(Killed):
            await settle(mail)
    finally:
        install(lambda _: None)
    await scene.set_age(2 * QUIET)
    assert (await settle_one(mail)).end is FlightEnd.SETTLED
    assert (await scene.charge()).state is State.SUCCEEDED
    await scene.audit()


async def test_many_charges_of_all_kinds_are_settled_together(mail: Mailroom) -> None:
    """Paid, declined, never sent and not in flight: each by what Stripe says of it."""
    scene = mail.scene
    await scene.plan([GOOD_CARD] * 10 + [DECLINING_CARD] * 10)
    a = scene.worker()
    for number, charge in enumerate(await a.claim()):
        sent = await a.sender.send_first(charge, CREATE, reason="planned")
        if number % 4 == 3:
            continue
        intent = await a.intend(sent.charge, CONFIRM)
        if number % 4:
            await a.transmit(intent)
    await scene.set_age(QUIET)
    assert (await settle(mail)).count() == {FlightEnd.SETTLED: 20}
    states = {row["state"] for row in await scene.pool.fetch("SELECT state FROM charges")}
    assert states == {"succeeded", "declined", "prepared"}
    await scene.audit()
