"""Carrying one charge through what Stripe, the wire and the database do to it."""

import socket

import pytest

from activities import carry, send
from activities.carry import LATER_SECONDS, End
from activities.limiter import Endpoint
from activities.send import Sent
from tests.activities.local_limiter import LocalLimiter
from tests.activities.scene import (
    CONFIRM,
    CREATE,
    DECLINING_CARD,
    GOOD_CARD,
    RATE_PER_SECOND,
    SLOW_DEBIT,
    Scene,
    Worker,
    fault,
)
from workflows.domain.breaker import BreakerRules, Trip
from workflows.domain.charge import Charge, Outcome
from workflows.domain.keys import Operation
from workflows.domain.states import State

AUTHENTICATING_CARD = "pm_card_authenticationRequired_always"
operations = pytest.mark.parametrize("operation", [CREATE, CONFIRM], ids=["create", "confirm"])


def refusing_url() -> str:
    """Return an address at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


async def carry_one(scene: Scene, worker: Worker | None = None) -> End:
    """Let a worker claim the only charge and carry it."""
    worker = worker or scene.worker()
    return await worker.carrier.carry(await worker.claim_one())


async def test_a_charge_is_two_requests_and_no_lookup(scene: Scene) -> None:
    """Where nothing goes wrong, a charge costs one create and one confirm."""
    await scene.plan()
    assert await carry_one(scene) is End.SETTLED
    assert (await scene.charge()).state is State.SUCCEEDED
    assert scene.wire == ["create v1", "confirm v1"]
    assert scene.lookups == 0
    assert await scene.sends() == [("confirm v1", 1, "proved"), ("create v1", 1, "proved")]
    await scene.audit()


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_open_the_breaker(scene: Scene, status: int) -> None:
    """Wrong credentials stop the pass: this charge stays as it is, the next ones are not touched."""
    await scene.plan([GOOD_CARD] * 3)
    scene.fault("error", status=status)
    worker = scene.worker()
    assert set((await worker.work()).values()) == {End.LEFT}
    assert worker.breaker.reason is not None
    assert scene.wire == ["create v1"]
    assert sorted(await scene.pool.fetchval("SELECT array_agg(state) FROM charges")) == [
        "creating",
        "planned",
        "planned",
    ]
    scene.clear_faults()
    assert set((await scene.work()).values()) == {End.SETTLED}
    assert scene.lookups == 0
    assert len(scene.sim.movements) == 3
    await scene.audit()


@pytest.mark.parametrize(
    ("kind", "effect"), [("drop", {}), ("error", {"status": 503})], ids=["silence", "server_errors"]
)
async def test_a_storm_opens_the_breaker(scene: Scene, kind: str, effect: dict[str, int]) -> None:
    """After so many requests in a row without an answer of use the pass stops; one starts the count again."""
    await scene.plan([GOOD_CARD] * 3)
    scene.fault(kind, **effect)
    worker = scene.worker(rules=BreakerRules(no_answers_in_a_row_max=4))
    ends = list((await worker.work()).values())
    assert ends == [End.LEFT] * 3
    assert len(scene.posts) == 4
    assert worker.breaker.trip is Trip.SILENCE
    scene.clear_faults()
    second = scene.worker()
    assert set((await second.work()).values()) == {End.SETTLED}
    assert second.breaker.no_answers_in_a_row == 0
    await scene.audit()


async def test_connect_refused_means_that_nothing_was_sent(scene: Scene) -> None:
    """A connection that never was leaves nothing unknown: the same key goes out later, without a lookup."""
    await scene.plan()
    assert await carry_one(scene, scene.worker(url=refusing_url())) is End.DEFERRED
    assert {proof for _, _, proof in await scene.sends()} == {"not_executed"}
    assert scene.wire == []
    await scene.set_age(LATER_SECONDS)
    assert await carry_one(scene) is End.SETTLED
    assert scene.wire == ["create v1", "confirm v1"]
    assert scene.lookups == 0
    await scene.audit()


async def test_a_request_whose_time_has_passed_does_not_leave(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frozen between commit and request, a process does not send when it thaws (I6): nothing is unknown."""
    await scene.plan()
    monkeypatch.setattr(send, "LEAVE_WITHIN_SECONDS", -1.0)
    assert await carry_one(scene) is End.DEFERRED
    assert {proof for _, _, proof in await scene.sends()} == {"not_executed"}
    assert scene.wire == []
    monkeypatch.undo()
    await scene.set_age(LATER_SECONDS)
    assert await carry_one(scene) is End.SETTLED
    assert scene.wire == ["create v1", "confirm v1"]
    await scene.audit()


@pytest.mark.parametrize(
    ("card", "state"),
    [
        (DECLINING_CARD, State.DECLINED),
        (AUTHENTICATING_CARD, State.NEEDS_CUSTOMER),
        (SLOW_DEBIT, State.PROCESSING),
    ],
)
async def test_what_the_bank_says_is_a_value(scene: Scene, card: str, state: State) -> None:
    """A decline, a call for the customer and a debit under way each settle the charge for the run."""
    await scene.plan([card, GOOD_CARD])
    assert set((await scene.work()).values()) == {End.SETTLED}
    states = await scene.pool.fetch("SELECT customer, state, reason FROM charges ORDER BY customer")
    assert [row["state"] for row in states] == [state, State.SUCCEEDED]
    assert states[0]["reason"]
    assert scene.lookups == 0
    await scene.audit()


@operations
async def test_400_to_the_first_send_refuses_the_charge_alone(scene: Scene, operation: Operation) -> None:
    """The request is wrong: refused with Stripe's word for it, and the others of the run are charged."""
    first, second = await scene.plan([GOOD_CARD, GOOD_CARD])
    scene.fault("error", status=400, code="resource_missing", operation=operation, times=1)
    ends = await scene.work()
    assert set(ends.values()) == {End.SETTLED}
    refused, paid = sorted([await scene.charge(first), await scene.charge(second)], key=lambda c: c.state)
    assert (refused.state, refused.reason) == (State.REFUSED, "resource_missing")
    assert paid.state is State.SUCCEEDED
    await scene.audit()


@operations
@pytest.mark.parametrize("status", [429, 401])
async def test_400_after_sends_that_did_nothing_refuses_too(
    scene: Scene, operation: Operation, status: int
) -> None:
    """Sends that Stripe said it did not execute leave nothing open, so the 400 after them is the answer."""
    await scene.plan()
    scene.sim.set_faults(
        fault("error", name="not-executed", status=status, operation=operation, times=1),
        fault("error", name="wrong", status=400, code="resource_missing", operation=operation),
    )
    await scene.work()
    await scene.work()
    charge = await scene.charge()
    assert (charge.state, charge.reason) == (State.REFUSED, "resource_missing")
    assert scene.wire[-2:] == [f"{operation} v1"] * 2
    await scene.audit()


@operations
async def test_400_after_a_send_without_an_answer_refuses_nothing(scene: Scene, operation: Operation) -> None:
    """A send that may have been executed is not judged by the 400 to a later one (I12)."""
    await scene.plan()
    scene.sim.set_faults(
        fault("drop", name="lost", operation=operation, times=1),
        fault("error", name="wrong", status=400, code="resource_missing", operation=operation),
    )
    await scene.work()
    assert (await scene.charge()).is_in_flight
    await scene.audit()


async def test_a_refusal_that_lost_its_race_is_repeated_once(scene: Scene) -> None:
    """A's 400 comes while B sends again, and B meets a 429: nothing was executed, so the next 400 refuses."""
    await scene.plan()
    a, b = scene.worker(), scene.worker()
    first = await a.intend(await a.claim_one(), CREATE)
    await scene.set_age(1)
    second = await b.intend_again(await b.claim_one())
    scene.sim.set_faults(
        fault("error", name="wrong", status=400, code="resource_missing", operation=CREATE, times=1),
        fault("error", name="busy", status=429, operation=CREATE),
    )
    assert (await a.record(first, await a.transmit(first))).state is State.CREATING
    assert (await b.record(second, await b.transmit(second))).state is State.CREATING
    scene.fault("error", status=400, code="resource_missing", operation=CREATE)
    assert await carry_one(scene) is End.SETTLED
    assert (await scene.charge()).state is State.REFUSED
    assert scene.wire == ["create v1"] * 3
    await scene.audit()


async def test_what_does_not_pass_the_ledgers_guards_is_no_progress(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that proves something and moves nothing is tried again a bounded number of times."""
    await scene.plan()
    scene.fault("error", status=400, code="resource_missing", operation=CREATE)
    a = scene.worker()

    async def record_nothing(outcome: Outcome) -> Charge:
        return await a.ledger.read(outcome.intent.charge.charge_id)

    monkeypatch.setattr(a.ledger, "record", record_nothing)
    assert await carry_one(scene, a) is End.DEFERRED
    assert scene.wire == ["create v1"] * carry.TRIES_MAX


@operations
async def test_a_wait_for_the_limiter_is_no_skew(scene: Scene, operation: Operation) -> None:
    """Two minutes pass before a lookup may leave: both clocks went on, so it settles the charge (I10)."""

    class SlowLimiter(LocalLimiter):
        async def acquire(self, endpoint: Endpoint) -> None:
            if endpoint in {Endpoint.LIST, Endpoint.RETRIEVE}:
                await scene.set_age(120)

    await scene.plan()
    scene.fault("drop", place="after", operation=operation, times=1)
    assert await carry_one(scene, scene.worker(limiter=SlowLimiter(RATE_PER_SECOND))) is End.SETTLED
    assert await scene.alarms() == 0
    await scene.audit()


async def test_a_superseded_sender_sends_nothing(scene: Scene) -> None:
    """Somebody claimed the charge since: the older sender stops before its first request."""
    await scene.plan()
    a, b = scene.worker(), scene.worker()
    old = await a.claim_one()
    await b.claim_one()
    assert await a.carrier.carry(old) is End.SUPERSEDED
    assert scene.posts == []
    assert await scene.sends() == []


async def test_a_superseded_sender_stops_in_the_middle(scene: Scene) -> None:
    """Claimed by B while A's create was on the wire: A records its answer and goes no further."""
    await scene.plan()
    a, b = scene.worker(), scene.worker()
    claimed: list[Charge] = []
    send_first = a.sender.send_first

    async def send_and_be_superseded(charge: Charge, operation: Operation, *, reason: str) -> Sent:
        sent = await send_first(charge, operation, reason=reason)
        if not claimed:
            claimed.append(await b.claim_one())
            return Sent(await a.ledger.read(charge.charge_id), sent.answer, sent.verdict)
        return sent

    a.sender.send_first = send_and_be_superseded  # type: ignore[method-assign, assignment]
    assert await carry_one(scene, a) is End.SUPERSEDED
    assert scene.wire == ["create v1"]
    assert await b.carrier.carry(claimed[0]) is End.SETTLED
    assert scene.wire == ["create v1", "confirm v1"]
    await scene.audit()


async def test_a_draining_worker_leaves_the_charge_as_it_is(scene: Scene) -> None:
    """The drain begins after the create: the PaymentIntent is on disk, nothing new is begun."""
    await scene.plan()
    a = scene.worker()
    send_first = a.sender.send_first

    async def send_and_drain(charge: Charge, operation: Operation, *, reason: str) -> Sent:
        a.is_draining = True
        return await send_first(charge, operation, reason=reason)

    a.sender.send_first = send_and_drain  # type: ignore[method-assign, assignment]
    assert await carry_one(scene, a) is End.LEFT
    left = await scene.charge()
    assert (left.state, left.payment_intent is not None) == (State.PREPARED, True)
    assert await scene.due_at() is None
    assert await carry_one(scene) is End.SETTLED
    assert scene.wire == ["create v1", "confirm v1"]
    await scene.audit()


@pytest.mark.parametrize("booked", [True, False], ids=["booked", "not_booked"])
async def test_a_payment_intent_that_is_not_what_was_asked_for_goes_to_review(
    scene: Scene, *, booked: bool
) -> None:
    """The amount owed changed behind a frozen key: it is never confirmed, and there is an alarm."""
    await scene.plan()
    a = scene.worker()
    intent = await a.intend(await a.claim_one(), CREATE)
    if booked:
        await a.transmit(intent)
    await scene.owner.execute("UPDATE charges SET amount_minor = amount_minor + 1")
    assert await carry_one(scene) is End.SETTLED
    assert (await scene.charge()).state is State.REVIEW
    assert "confirm v1" not in scene.wire
    assert await scene.alarms() == 1
    assert scene.sim.movements == []


async def test_a_paid_amount_that_is_not_what_is_owed_goes_to_review(scene: Scene) -> None:
    """The confirm's answer was lost and the amount owed differs from what was paid: people must look."""
    await scene.plan()
    a = scene.worker()
    prepared = (await a.sender.send_first(await a.claim_one(), CREATE, reason="planned")).charge
    await a.transmit(await a.intend(prepared, CONFIRM))
    await scene.tamper("UPDATE charges SET amount_minor = amount_minor + 1")
    assert await carry_one(scene) is End.SETTLED
    assert (await scene.charge()).state is State.REVIEW
    assert await scene.alarms() == 1


async def test_a_late_payment_of_a_reviewed_charge_raises_an_alarm(scene: Scene) -> None:
    """A frozen send pays after the charge had gone to review: the truth wins, and is said aloud."""
    await scene.plan()
    a = scene.worker()
    prepared = (await a.sender.send_first(await a.claim_one(), CREATE, reason="planned")).charge
    confirm = await a.intend(prepared, CONFIRM)
    seen = await scene.charge()
    await a.ledger.settle(
        seen,
        State.REVIEW,
        payment_intent=seen.payment_intent or "",
        latest_charge=None,
        reason="scripted",
    )
    paid = await a.record(confirm, await a.transmit(confirm))
    assert paid.state is State.SUCCEEDED
    assert await scene.decisions() == [("settled_by_lookup", False), ("overturned", True)]
    await scene.audit()
