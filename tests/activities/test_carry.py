"""Carrying one charge through what Stripe, the wire and the database do to it."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from activities import carry
from activities.carry import LATER_SECONDS, TRIES_MAX, End
from activities.limiter import Endpoint, Limiter
from activities.send import Sent
from tests.activities.scene import (
    AMOUNT_MINOR,
    CONFIRM,
    CREATE,
    DECLINING_CARD,
    GOOD_CARD,
    RATE_PER_SECOND,
    SLOW_DEBIT,
    Scene,
    Worker,
    seconds,
)
from workflows.domain.charge import Charge
from workflows.domain.keys import Operation
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS

AUTHENTICATING_CARD = "pm_card_authenticationRequired_always"
operations = pytest.mark.parametrize("operation", [CREATE, CONFIRM], ids=["create", "confirm"])


class WatchedLimiter(Limiter):
    """A limiter that remembers what it was told to slow down."""

    def __init__(self) -> None:
        super().__init__(RATE_PER_SECOND)
        self.slowed: list[tuple[Endpoint, float | None]] = []

    def slow_down(self, endpoint: Endpoint, *, retry_after_seconds: float | None) -> None:
        """Remember, and slow down."""
        self.slowed.append((endpoint, retry_after_seconds))
        super().slow_down(endpoint, retry_after_seconds=retry_after_seconds)


def refusing_url() -> str:
    """Return an address at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def with_resends(operation: Operation, resends: int) -> list[str]:
    """Return the wire of a charge that is paid after so many resends of one operation."""
    wire = ["create v1", "confirm v1"]
    at = 1 if operation is CREATE else 2
    return [*wire[:at], *[f"{operation} v1"] * resends, *wire[at:]]


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


@operations
@pytest.mark.parametrize("retry_after", [None, "0.02"], ids=["without_retry_after", "with_retry_after"])
@pytest.mark.parametrize("code", ["rate_limit", "lock_timeout"])
async def test_i04_a_429_is_answered_by_the_same_key_later(
    scene: Scene, operation: Operation, retry_after: str | None, code: str
) -> None:
    """429, for the rate or for a lock: same key again, nothing looked up or failed, and a slower limiter."""
    await scene.plan()
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    scene.fault("error", status=429, code=code, headers=headers, operation=operation, times=2)
    limiter = WatchedLimiter()
    assert await carry_one(scene, scene.worker(limiter=limiter)) is End.SETTLED
    assert (await scene.charge()).state is State.SUCCEEDED
    assert scene.wire == with_resends(operation, 2)
    assert scene.lookups == 0
    wished = None if retry_after is None else float(retry_after)
    assert limiter.slowed == [(Endpoint(operation), wished)] * 2
    assert limiter.rate_per_second(Endpoint(operation)) < RATE_PER_SECOND
    assert await scene.decisions() == []
    await scene.audit()


async def test_i04_b_429_without_end_leaves_the_charge_for_later(scene: Scene) -> None:
    """The sends of one pass are bounded; the charge is due again soon, as it was, and then pays."""
    await scene.plan()
    scene.fault("error", status=429, operation=CONFIRM)
    assert await carry_one(scene) is End.DEFERRED
    assert scene.wire == ["create v1", *["confirm v1"] * TRIES_MAX]
    charge = await scene.charge()
    assert (charge.state, charge.confirm_version) == (State.CONFIRMING, 1)
    scene.clear_faults()
    await scene.set_age(LATER_SECONDS)
    assert await carry_one(scene) is End.SETTLED
    assert (await scene.charge()).state is State.SUCCEEDED
    assert scene.lookups == 0
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


async def test_silence_opens_the_breaker(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many requests in a row without an answer the pass stops; one answer starts the count again."""
    monkeypatch.setattr(carry, "NO_ANSWERS_IN_A_ROW_MAX", 4)
    await scene.plan([GOOD_CARD] * 3)
    scene.fault("drop")
    worker = scene.worker()
    ends = list((await worker.work()).values())
    assert ends == [End.LEFT] * 3
    assert len(scene.posts) == 4
    assert worker.breaker.reason is not None
    scene.clear_faults()
    second = scene.worker()
    assert set((await second.work()).values()) == {End.SETTLED}
    assert second.breaker.no_answers_in_a_row == 0
    await scene.audit()


async def test_i03_key_in_use_ends_succeeded_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The confirm runs longer than the client waits: resends get 409, no version 2, one success."""
    monkeypatch.setattr(carry, "BACKOFF_SECONDS", 0.15)
    monkeypatch.setattr(carry, "BACKOFF_SECONDS_MAX", 0.4)
    await scene.plan()
    worker = scene.worker(timeout_seconds=0.6)
    charge = (await worker.sender.send_first(await worker.claim_one(), CREATE, reason="planned")).charge
    scene.fault("delay", seconds=1.0, operation=CONFIRM, times=1)
    assert await worker.carrier.carry(charge) is End.SETTLED
    paid = await scene.charge()
    assert (paid.state, paid.confirm_version) == (State.SUCCEEDED, 1)
    assert 409 in {request.status for request in scene.posts}
    assert set(scene.wire) == {"create v1", "confirm v1"}
    assert len(scene.sim.movements) == 1
    await scene.audit()


async def test_i03_b_409_beyond_the_retries_is_parked_as_unknown(scene: Scene) -> None:
    """409 to the end of the retries: in flight with a due time, and a later pass settles it."""
    await scene.plan()
    scene.fault("error", status=409, operation=CONFIRM)
    assert await carry_one(scene) is End.DEFERRED
    parked = await scene.charge()
    assert (parked.state, parked.confirm_version) == (State.CONFIRMING, 1)
    assert {proof for key, _, proof in await scene.sends() if key == "confirm v1"} == {"unknown"}
    scene.clear_faults()
    await scene.set_age(LATER_SECONDS)
    assert await carry_one(scene) is End.SETTLED
    assert (await scene.charge()).confirm_version == 1
    assert len(scene.sim.movements) == 1
    await scene.audit()


@operations
async def test_i02_a_slow_success_is_found_and_not_repeated(scene: Scene, operation: Operation) -> None:
    """Booked at once, answered long after the client gave up: the lookup finds it."""
    await scene.plan()
    worker = scene.worker(timeout_seconds=0.5)
    scene.fault("delay", place="after", seconds=1.0, operation=operation, times=1)
    assert await carry_one(scene, worker) is End.SETTLED
    assert (await scene.charge()).state is State.SUCCEEDED
    assert scene.wire == ["create v1", "confirm v1"]
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


async def test_i16_b_a_customer_who_is_asked_for_is_not_tried_again(scene: Scene) -> None:
    """Whoever has to authenticate is left alone: a later pass sends nothing."""
    await scene.plan([AUTHENTICATING_CARD])
    await carry_one(scene)
    sent = scene.wire
    await scene.set_age(3 * WINDOW_SECONDS)
    assert await scene.work() == {}
    assert scene.wire == sent


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

    a.sender.send_first = send_and_be_superseded  # type: ignore[method-assign]
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

    a.sender.send_first = send_and_drain  # type: ignore[method-assign]
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
    await scene.owner.execute("UPDATE charges SET amount_minor = amount_minor + 1")
    assert await carry_one(scene) is End.SETTLED
    assert (await scene.charge()).state is State.REVIEW
    assert await scene.alarms() == 1


async def test_i05_a_key_whose_body_disagrees_goes_to_review(scene: Scene) -> None:
    """Stripe knows the key with another body: review with an alarm, and no new key is made, ever."""
    await scene.plan()
    a = scene.worker()
    charge = await a.claim_one()
    foreign = await a.gateway.post(
        CREATE,
        account=a.sender._account,
        path="/v1/payment_intents",
        parameters={"amount": AMOUNT_MINOR + 1, "currency": "usd", "customer": charge.customer},
        key=charge.key_of(CREATE, 1),
    )
    assert foreign.succeeded
    assert await a.carrier.carry(charge) is End.SETTLED
    assert (await scene.charge()).state is State.REVIEW
    assert await scene.decisions() == [("review", True)]
    await scene.set_age(3 * WINDOW_SECONDS)
    assert await scene.work() == {}
    assert scene.wire == ["create v1", "create v1"]


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
    assert await scene.decisions() == [("overturned", True)]
    await scene.audit()


async def test_i05_b_a_resend_sends_what_was_frozen(scene: Scene) -> None:
    """Card and description changed since the first send: the resend has the stored body, so no 400."""
    await scene.plan()
    a = scene.worker()
    intent = await a.intend(await a.claim_one(), CREATE)
    scene.fault("drop", place="after", operation=CREATE)
    await a.transmit(intent)
    scene.clear_faults()
    await scene.owner.execute("UPDATE charges SET payment_method = 'pm_card_visa_new', description = 'new'")
    again = await a.intend_again(await scene.charge())
    assert (await a.transmit(again)).replayed
    assert len({request.body_sha256 for request in scene.posts}) == 1
    assert await carry_one(scene) is End.SETTLED
    await scene.audit()


@operations
async def test_i01_whatever_dies_the_key_stays_the_same(scene: Scene, operation: Operation) -> None:
    """Booked, and dead before the answer was recorded, twice: key and body are the same bytes each time."""
    await scene.plan()
    a = scene.worker()
    charge = await a.claim_one()
    if operation is CONFIRM:
        charge = (await a.sender.send_first(charge, CREATE, reason="planned")).charge
    await a.transmit(await a.intend(charge, operation))
    for _ in range(2):
        b = scene.worker()
        answer = await b.transmit(await b.intend_again(await b.claim_one()))
        assert answer.replayed
    sent = [request for request in scene.posts if (request.key or "").startswith(operation)]
    assert len({(request.key, request.body_sha256) for request in sent}) == 1
    assert await carry_one(scene) is End.SETTLED
    paid = await scene.charge()
    assert (paid.state, paid.create_version, paid.confirm_version) == (State.SUCCEEDED, 1, 1)
    await scene.audit()


@operations
async def test_i06_a_a_stored_500_that_booked_nothing_waits_for_version_2(
    scene: Scene, operation: Operation
) -> None:
    """The replayed 500 is repeated once, not for a day; past the window, a negative lookup and version 2."""
    await scene.plan(amount_minor=15_000, currency="gbp")
    scene.fault("error", status=500, stored=True, operation=operation, times=1)
    assert await carry_one(scene) is End.DEFERRED
    stored = [request for request in scene.posts if request.status == 500]
    assert [request.replayed for request in stored] == [False, True]
    sent = scene.wire
    await scene.set_age(seconds("23:59:59"))
    assert await scene.work() == {}
    await scene.set_age(WINDOW_SECONDS)
    assert await carry_one(scene) is End.SETTLED
    assert scene.wire[len(sent) :][0] == f"{operation} v2"
    assert [movement.amount for movement in scene.sim.movements] == [15_000]
    await scene.audit()


@operations
async def test_i06_b_a_stored_500_that_booked_is_found_at_once(scene: Scene, operation: Operation) -> None:
    """The lookup after the 500 finds what was booked: no second send of the operation."""
    await scene.plan(amount_minor=15_000, currency="gbp")
    scene.fault("error", place="after", status=500, stored=True, operation=operation, times=1)
    assert await carry_one(scene) is End.SETTLED
    assert scene.wire == ["create v1", "confirm v1"]
    assert (await scene.charge()).state is State.SUCCEEDED
    await scene.audit()


async def test_i07_a_decline_is_not_repeated_inside_the_window(scene: Scene) -> None:
    """Funds are there at 06:00, but version 1 would only replay the stored decline: 06:30 sends nothing."""
    await scene.plan(["pm_card_declineOnceThenSucceed_later"])
    assert await carry_one(scene) is End.SETTLED
    declined = await scene.charge()
    assert (declined.state, declined.reason) == (State.DECLINED, "insufficient_funds")
    await scene.set_age(seconds("6:30"))
    assert await scene.work() == {}
    assert scene.wire == ["create v1", "confirm v1"]
    await scene.audit()


@operations
@pytest.mark.parametrize("place", ["after", "before"], ids=["booked", "not_booked"])
async def test_i08_retried_days_later(scene: Scene, operation: Operation, place: str) -> None:
    """The connection was reset, the worker down for three days: lookup first, version 2 only if absent."""
    await scene.plan(amount_minor=60_000)
    a = scene.worker()
    charge = await a.claim_one()
    if operation is CONFIRM:
        charge = (await a.sender.send_first(charge, CREATE, reason="planned")).charge
    scene.fault("drop", place=place, operation=operation)
    await a.transmit(await a.intend(charge, operation))
    scene.clear_faults()
    await scene.set_age(seconds("72:00"))
    sent = len(scene.sim.requests)
    assert await carry_one(scene) is End.SETTLED
    assert scene.sim.requests[sent].method == "GET"
    paid = await scene.charge()
    assert paid.state is State.SUCCEEDED
    assert paid.version_of(operation) == (1 if place == "after" else 2)
    assert [movement.amount for movement in scene.sim.movements] == [60_000]
    await scene.audit()


@asynccontextmanager
async def failing_commits(scene: Scene, times: int) -> AsyncIterator[None]:
    """Fail so many commits of a success with 40001, as a serialization failure would."""
    await scene.owner.execute(
        f"""
        CREATE SEQUENCE commit_failures;
        CREATE FUNCTION fail_commit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
        BEGIN
            IF nextval('commit_failures') <= {times} THEN
                RAISE EXCEPTION 'could not serialize access' USING ERRCODE = 'serialization_failure';
            END IF;
            RETURN NEW;
        END
        $$;
        CREATE TRIGGER fail_commit BEFORE UPDATE ON charges
            FOR EACH ROW WHEN (NEW.state = 'succeeded') EXECUTE FUNCTION fail_commit();
        """
    )
    try:
        yield
    finally:
        await scene.owner.execute(
            "DROP TRIGGER fail_commit ON charges; DROP FUNCTION fail_commit; DROP SEQUENCE commit_failures"
        )


async def test_i27_a_commit_that_fails_three_times_charges_once(scene: Scene) -> None:
    """The record of a success meets 40001 three times: it is looked up, never sent again."""
    await scene.plan()
    async with failing_commits(scene, 3):
        for _ in range(3):
            with pytest.raises(asyncpg.SerializationError):
                await carry_one(scene)
            assert (await scene.charge()).state is State.CONFIRMING
        assert await carry_one(scene) is End.SETTLED
    assert (await scene.charge()).state is State.SUCCEEDED
    assert scene.wire == ["create v1", "confirm v1"]
    await scene.audit()


async def test_i29_the_deciding_lookup_is_a_list(scene: Scene) -> None:
    """A second after a dropped answer the customer's list shows the PaymentIntent; search is never asked."""
    await scene.plan()
    a = scene.worker()
    scene.fault("drop", place="after", operation=CREATE)
    await a.transmit(await a.intend(await a.claim_one(), CREATE))
    scene.clear_faults()
    await scene.set_age(1)
    assert await carry_one(scene) is End.SETTLED
    gets = [request.path for request in scene.sim.requests if request.method == "GET"]
    assert gets == ["/v1/payment_intents"]
    assert scene.wire == ["create v1", "confirm v1"]
    await scene.audit()
