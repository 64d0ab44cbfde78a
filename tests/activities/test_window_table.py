"""The window table of DESIGN.md section 3: what a new worker does with an unanswered key, by the key's age.

Each row stands for create and confirm, with the first send booked or not, its answer lost or a stored 500.
`T` is a key that was sent and whose outcome nobody knows.
"""

from datetime import UTC, datetime
from typing import Any

import pytest

from activities.carry import End
from tests.activities.scene import (
    CONFIRM,
    CREATE,
    DECLINING_CARD,
    GOOD_CARD,
    START,
    Scene,
    seconds,
)
from workflows.domain.keys import Operation
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS

FIRST_SENDS: dict[str, dict[str, Any]] = {
    "booked": {"kind": "drop", "place": "after"},
    "not_booked": {"kind": "drop", "place": "before"},
    "stored_500_booked": {"kind": "error", "place": "after", "stored": True},
    "stored_500_not_booked": {"kind": "error", "place": "before", "stored": True},
}
OPERATIONS = {"create": CREATE, "confirm": CONFIRM}
IN_FLIGHT = {CREATE: State.CREATING, CONFIRM: State.CONFIRMING}
WINDOW_END = datetime.fromtimestamp(START + WINDOW_SECONDS, tz=UTC)
MINUTE = 60.0

operations = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
first_sends = pytest.mark.parametrize("first_send", FIRST_SENDS)


async def send_first(scene: Scene, operation: Operation, first_send: str, *, card: str = GOOD_CARD) -> None:
    """Send the operation's first key at age 0 with this fate; then the worker is gone."""
    await scene.plan([card])
    worker = scene.worker()
    charge = await worker.claim_one()
    if operation is CONFIRM:
        charge = (await worker.sender.send_first(charge, CREATE, reason="planned")).charge
    scene.fault(operation=operation, **FIRST_SENDS[first_send])
    await worker.sender.send_first(charge, operation, reason="first")
    scene.clear_faults()


def first_wire(operation: Operation) -> list[str]:
    """Return what is on the wire after `send_first`."""
    return ["create v1"] if operation is CREATE else ["create v1", "confirm v1"]


def rest_of_the_way(operation: Operation) -> list[str]:
    """Return what is sent once the unknown send of an operation is found booked."""
    return ["confirm v1"] if operation is CREATE else []


async def assert_paid_once(scene: Scene, *, version: int, operation: Operation) -> None:
    """The charge has succeeded at this version of the operation, and the book shows it once."""
    charge = await scene.charge()
    assert charge.state is State.SUCCEEDED
    assert charge.version_of(operation) == version
    assert await scene.due_at() is None
    assert len(scene.sim.movements) == 1
    await scene.audit()


async def assert_waits_until(scene: Scene, due_at: datetime, operation: Operation) -> None:
    """The charge is in flight as before, at version 1, and due then."""
    charge = await scene.charge()
    assert charge.state is IN_FLIGHT[operation]
    assert charge.version_of(operation) == 1
    assert await scene.due_at() == due_at
    await scene.audit()


async def resume(scene: Scene) -> End:
    """Let a new worker claim the only charge and carry it on."""
    [end] = (await scene.work()).values()
    return end


@pytest.mark.parametrize("age", ["0:01", "23:44", "23:46", "23:59:59", "24:00:00", "24:00:01", "72:00"])
@pytest.mark.parametrize("first_send", ["booked", "stored_500_booked"])
@operations
async def test_what_was_booked_is_settled_by_lookup_at_any_age(
    scene: Scene, operation: Operation, first_send: str, age: str
) -> None:
    """Stripe's books show the first send: it is recorded, and its key is never sent again."""
    await send_first(scene, operation, first_send)
    await scene.set_age(seconds(age))
    assert await resume(scene) is End.SETTLED
    assert scene.wire == first_wire(operation) + rest_of_the_way(operation)
    assert scene.lookups == 1
    await assert_paid_once(scene, version=1, operation=operation)


@pytest.mark.parametrize("age", ["0:01", "23:44"])
@operations
async def test_inside_the_window_the_same_key_is_sent_again(
    scene: Scene, operation: Operation, age: str
) -> None:
    """Nothing was booked: after a lookup the same key with the same body goes out once more, and pays."""
    await send_first(scene, operation, "not_booked")
    await scene.set_age(seconds(age))
    assert await resume(scene) is End.SETTLED
    again = [f"{operation} v1"]
    assert scene.wire == first_wire(operation) + again + rest_of_the_way(operation)
    await assert_paid_once(scene, version=1, operation=operation)


@pytest.mark.parametrize("age", ["0:01", "23:44"])
@operations
async def test_a_stored_500_is_sent_again_once_and_then_looked_up_only(
    scene: Scene, operation: Operation, age: str
) -> None:
    """The replay of a stored 500 ends the resends; the charge waits for the window's end and is paid then."""
    await send_first(scene, operation, "stored_500_not_booked")
    await scene.set_age(seconds(age))
    assert await resume(scene) is End.DEFERRED
    sent = [*first_wire(operation), f"{operation} v1"]
    assert scene.wire == sent
    assert scene.posts[-1].replayed
    await assert_waits_until(scene, WINDOW_END, operation)
    await scene.set_age(WINDOW_SECONDS - 1)
    assert await scene.work() == {}
    assert scene.wire == sent
    await assert_second_version_pays(scene, operation, sent)


@pytest.mark.parametrize("age", ["23:45", "23:46", "23:59:59"])
@pytest.mark.parametrize("first_send", ["not_booked", "stored_500_not_booked"])
@operations
async def test_close_to_the_window_s_end_nothing_is_sent(
    scene: Scene, operation: Operation, first_send: str, age: str
) -> None:
    """Only a lookup runs; the charge is due exactly when the window ends, and is paid then at version 2."""
    await send_first(scene, operation, first_send)
    await scene.set_age(seconds(age))
    assert await resume(scene) is End.DEFERRED
    assert scene.wire == first_wire(operation)
    assert scene.lookups == 1
    await assert_waits_until(scene, WINDOW_END, operation)
    assert await scene.alarms() == 0
    await assert_second_version_pays(scene, operation, first_wire(operation))


async def assert_second_version_pays(scene: Scene, operation: Operation, sent: list[str]) -> None:
    """At the window's end the waiting charge is due, and pays once at version 2."""
    await scene.set_age(WINDOW_SECONDS)
    assert await resume(scene) is End.SETTLED
    assert scene.wire == [*sent, f"{operation} v2", *rest_of_the_way(operation)]
    await assert_paid_once(scene, version=2, operation=operation)
    assert await scene.work() == {}


@pytest.mark.parametrize("age", ["24:00:00", "24:00:01", "72:00"])
@pytest.mark.parametrize("first_send", ["not_booked", "stored_500_not_booked"])
@operations
async def test_past_the_window_a_lookup_comes_first_and_then_version_2(
    scene: Scene, operation: Operation, first_send: str, age: str
) -> None:
    """Not booked: a lookup made after the window's end, the decision on record, then version 2 once."""
    await send_first(scene, operation, first_send)
    await scene.set_age(seconds(age))
    assert await resume(scene) is End.SETTLED
    assert scene.wire == [*first_wire(operation), f"{operation} v2", *rest_of_the_way(operation)]
    assert scene.lookups == 1
    lookup = next(request for request in scene.sim.requests if request.method == "GET")
    second = next(request for request in scene.posts if request.key and request.key.endswith("_v2"))
    assert lookup.ordinal < second.ordinal
    assert (await scene.decisions()).count(("rekeyed", False)) == 1
    await assert_paid_once(scene, version=2, operation=operation)


@pytest.mark.parametrize("age", ["24:00:00", "72:00"])
@operations
async def test_keys_that_stripe_keeps_longer_change_nothing(
    scene: Scene, operation: Operation, age: str
) -> None:
    """Stripe may remember a key for more than 24 hours: version 2 is another key and pays all the same."""
    scene.sim.change(keys_kept_longer=True)
    await send_first(scene, operation, "stored_500_not_booked")
    await scene.set_age(seconds(age))
    assert await resume(scene) is End.SETTLED
    await assert_paid_once(scene, version=2, operation=operation)


@pytest.mark.parametrize("age", ["23:44", "24:00:00", "72:00"])
@pytest.mark.parametrize("ledger_ahead_seconds", [90.0, -90.0], ids=["90s_ahead", "90s_behind"])
@first_sends
@operations
async def test_with_a_skewed_clock_everything_waits(
    scene: Scene, operation: Operation, first_send: str, age: str, ledger_ahead_seconds: float
) -> None:
    """The ledger's clock is 90 s off Stripe's `Date`: an alarm, no send, no version; then all goes on."""
    await send_first(scene, operation, first_send)
    await scene.set_age(seconds(age), ledger_ahead_seconds=ledger_ahead_seconds)
    if operation is CONFIRM and first_send in {"booked", "stored_500_booked"}:
        # The charge's own PaymentIntent is paid: that is true whatever our clock says.
        assert await resume(scene) is End.SETTLED
        assert scene.wire == first_wire(operation)
        await assert_paid_once(scene, version=1, operation=operation)
        return
    assert await resume(scene) is End.DEFERRED
    assert scene.wire == first_wire(operation)
    looked_at = (await scene.now()).timestamp()
    await assert_waits_until(scene, datetime.fromtimestamp(looked_at + MINUTE, tz=UTC), operation)
    assert await scene.decisions() == [("waiting", True)]
    await scene.set_age(seconds(age) + 3 * MINUTE)
    end = await resume(scene)
    if end is End.DEFERRED:
        assert await scene.due_at() == WINDOW_END
        await scene.set_age(WINDOW_SECONDS)
        end = await resume(scene)
    assert end is End.SETTLED
    assert await scene.alarms() == 1
    assert len(scene.sim.movements) == 1
    await scene.audit()


@pytest.mark.parametrize("ledger_ahead_seconds", [59.0, -59.0], ids=["59s_ahead", "59s_behind"])
async def test_up_to_a_minute_of_skew_is_gone_on_with(scene: Scene, ledger_ahead_seconds: float) -> None:
    """A minute and less off is normal: the charge is paid without an alarm."""
    await send_first(scene, CONFIRM, "not_booked")
    await scene.set_age(seconds("0:10"), ledger_ahead_seconds=ledger_ahead_seconds)
    assert await resume(scene) is End.SETTLED
    assert await scene.alarms() == 0
    await assert_paid_once(scene, version=1, operation=CONFIRM)


@pytest.mark.parametrize("age", ["0:01", "23:44"])
async def test_a_decline_that_was_lost_is_replayed_inside_the_window(scene: Scene, age: str) -> None:
    """The answer to a declined confirm was lost: a resend brings the stored decline, a lookup confirms it."""
    await send_first(scene, CONFIRM, "booked", card=DECLINING_CARD)
    await scene.set_age(seconds(age))
    assert await resume(scene) is End.SETTLED
    assert scene.wire == ["create v1", "confirm v1", "confirm v1"]
    assert (await scene.charge()).state is State.DECLINED
    assert scene.sim.movements == []
    await scene.audit()


async def test_a_decline_that_was_lost_waits_for_the_window_s_end(scene: Scene) -> None:
    """Too late for a resend: the newer failed charge counts once no send of the key can still be running."""
    await send_first(scene, CONFIRM, "booked", card=DECLINING_CARD)
    await scene.set_age(seconds("23:46"))
    assert await resume(scene) is End.DEFERRED
    await assert_waits_until(scene, WINDOW_END, CONFIRM)
    await scene.set_age(WINDOW_SECONDS)
    assert await resume(scene) is End.SETTLED
    charge = await scene.charge()
    assert (charge.state, charge.confirm_version) == (State.DECLINED, 1)
    assert scene.wire == ["create v1", "confirm v1"]
    await scene.audit()


@operations
async def test_an_incomplete_lookup_permits_nothing(scene: Scene, operation: Operation) -> None:
    """Past the window, with lookups failing: nothing is sent, and the charge is looked at again soon."""
    await send_first(scene, operation, "not_booked")
    await scene.set_age(seconds("24:00:01"))
    scene.fault("error", status=500, match={"method": "GET"})
    assert await resume(scene) is End.DEFERRED
    assert scene.wire == first_wire(operation)
    scene.clear_faults()
    await scene.set_age(seconds("24:01:00"))
    assert await resume(scene) is End.SETTLED
    await assert_paid_once(scene, version=2, operation=operation)
