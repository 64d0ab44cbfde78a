"""Public incidents as scenarios, by their numbers: what went wrong for others ends with one charge here."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from activities import carry
from activities.carry import LATER_SECONDS, TRIES_MAX, End
from activities.limiter import Endpoint
from tests.activities.local_limiter import LocalLimiter
from tests.activities.scene import (
    AMOUNT_MINOR,
    CONFIRM,
    CREATE,
    RATE_PER_SECOND,
    Scene,
    Worker,
    seconds,
)
from workflows.domain.keys import Operation
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS

AUTHENTICATING_CARD = "pm_card_authenticationRequired_always"
operations = pytest.mark.parametrize("operation", [CREATE, CONFIRM], ids=["create", "confirm"])


class WatchedLimiter(LocalLimiter):
    """A limiter that remembers what it was told to slow down."""

    def __init__(self) -> None:
        super().__init__(RATE_PER_SECOND)
        self.slowed: list[tuple[Endpoint, float | None, str | None]] = []

    def slow_down(
        self, endpoint: Endpoint, *, retry_after_seconds: float | None, reason: str | None = None
    ) -> None:
        """Remember, and slow down."""
        self.slowed.append((endpoint, retry_after_seconds, reason))
        super().slow_down(endpoint, retry_after_seconds=retry_after_seconds, reason=reason)


def with_resends(operation: Operation, resends: int) -> list[str]:
    """Return the wire of a charge that is paid after so many resends of one operation."""
    wire = ["create v1", "confirm v1"]
    at = 1 if operation is CREATE else 2
    return [*wire[:at], *[f"{operation} v1"] * resends, *wire[at:]]


async def carry_one(scene: Scene, worker: Worker | None = None) -> End:
    """Let a worker claim the only charge and carry it."""
    worker = worker or scene.worker()
    return await worker.carrier.carry(await worker.claim_one())


@operations
@pytest.mark.parametrize("retry_after", [None, "0.02"], ids=["without_retry_after", "with_retry_after"])
@pytest.mark.parametrize("code", ["rate_limit", "lock_timeout"])
async def test_i04_a_429_is_answered_by_the_same_key_later(
    scene: Scene, operation: Operation, retry_after: str | None, code: str
) -> None:
    """429, for the rate or a lock: same key again, nothing looked up or failed; only the rate slows down."""
    await scene.plan()
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    scene.fault("error", status=429, code=code, headers=headers, operation=operation, times=2)
    limiter = WatchedLimiter()
    assert await carry_one(scene, scene.worker(limiter=limiter)) is End.SETTLED
    assert (await scene.charge()).state is State.SUCCEEDED
    assert scene.wire == with_resends(operation, 2)
    assert scene.lookups == 0
    wished = None if retry_after is None else float(retry_after)
    assert limiter.slowed == [(Endpoint(operation), wished, code)] * 2
    assert (limiter.rate_per_second(Endpoint(operation)) < RATE_PER_SECOND) is (code == "rate_limit")
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


async def test_i16_b_a_customer_who_is_asked_for_is_not_tried_again(scene: Scene) -> None:
    """Whoever has to authenticate is left alone: a later pass sends nothing."""
    await scene.plan([AUTHENTICATING_CARD])
    await carry_one(scene)
    sent = scene.wire
    await scene.set_age(3 * WINDOW_SECONDS)
    assert await scene.work() == {}
    assert scene.wire == sent


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
