"""The three tests that decide, and each condition alone, against the send path and over real sockets.

What another test shows already is named in `ELSEWHERE` and not repeated.
"""

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from activities import carry
from activities.carry import BACKOFF_SECONDS, BACKOFF_SECONDS_MAX, LATER_SECONDS, TRIES_MAX, End
from activities.limiter import Endpoint
from tests.activities.local_limiter import LocalLimiter
from tests.activities.scene import (
    ACCOUNT,
    AMOUNT_MINOR,
    CONFIRM,
    CREATE,
    LEDGER_TABLES,
    RATE_PER_SECOND,
    Scene,
    fault,
)
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS

TESTS = Path(__file__).resolve().parents[1]
ELSEWHERE = {
    "card decline": "activities/test_incidents.py::test_i07_a_decline_is_not_repeated_inside_the_window",
    "card decline, its answer lost": (
        "activities/test_window_table.py::test_a_decline_that_was_lost_is_replayed_inside_the_window"
    ),
    "authentication of the caller": "activities/test_carry.py::test_refused_credentials_open_the_breaker",
    "authentication of the customer": (
        "activities/test_incidents.py::test_i16_b_a_customer_who_is_asked_for_is_not_tried_again"
    ),
    "rate limit, at first": "activities/test_incidents.py::test_i04_a_429_is_answered_by_the_same_key_later",
    "rate limit, without end": (
        "activities/test_incidents.py::test_i04_b_429_without_end_leaves_the_charge_for_later"
    ),
    "rate limit, part-way": "failure_modes/test_decisive.py::test_a_429_part_way_is_waited_out",
    "503": "failure_modes/test_decisive.py::test_503_is_met_by_the_backoff_schedule",
    "timeout": "activities/test_incidents.py::test_i02_a_slow_success_is_found_and_not_repeated",
    "dropped connection, booked": (
        "activities/test_window_table.py::test_what_was_booked_is_settled_by_lookup_at_any_age"
    ),
    "dropped connection, not booked": (
        "activities/test_window_table.py::test_inside_the_window_the_same_key_is_sent_again"
    ),
    "out of order, lookups": (
        "activities/test_model_traces_of_lookups.py::"
        "test_t8_b_a_settler_overtaken_by_the_answer_goes_by_the_row"
    ),
}


async def read_ledger(scene: Scene) -> dict[str, list[dict[str, Any]]]:
    """Return every row of every table that a run fills."""
    return {
        table: [dict(row) for row in await scene.owner.fetch(f"SELECT * FROM {table} ORDER BY 1, 2")]
        for table in LEDGER_TABLES
    }


def row_of(ledger: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the only charge, as the ledger has it."""
    [row] = ledger["charges"]
    return row


# --- the three ---------------------------------------------------------------------------------------------


async def test_replay_has_one_side_effect(scene: Scene) -> None:
    """The same confirm twice on the wire and twice into the ledger: one payment, one success."""
    worker = scene.worker()
    charge = await scene.prepare(worker)
    first = await worker.intend(charge, CONFIRM)
    paid = await worker.transmit(first)
    second = await worker.intend_again(await scene.charge())
    again = await worker.transmit(second)
    assert (paid.replayed, again.replayed) == (False, True)
    assert again.payment_intent == paid.payment_intent
    for intent, answer in ((first, paid), (second, again), (first, paid)):
        recorded = await worker.record(intent, answer)
    assert recorded.state is State.SUCCEEDED
    assert scene.wire == ["create v1", "confirm v1", "confirm v1"]
    assert len({(request.key, request.body_sha256) for request in scene.posts[1:]}) == 1
    assert len(scene.sim.movements) == 1
    await scene.audit()


async def test_parameter_mismatch_is_a_400_and_writes_nothing(scene: Scene) -> None:
    """Another amount under a key that was used: 400, no row and no object changed, and the run goes on."""
    worker = scene.worker()
    charge = await scene.prepare(worker)
    ledger, booked = await read_ledger(scene), scene.sim.summary()
    answer = await worker.gateway.post(
        CREATE,
        account=ACCOUNT,
        path="/v1/payment_intents",
        parameters={"amount": AMOUNT_MINOR + 1, "currency": charge.currency, "customer": charge.customer},
        key=charge.key_of(CREATE, 1),
    )
    assert (answer.http_status, answer.error_type) == (400, "idempotency_error")
    assert await read_ledger(scene) == ledger
    after = scene.sim.summary()
    assert {name: after[name] for name in ("payment_intents", "movements")} == {
        name: booked[name] for name in ("payment_intents", "movements")
    }
    assert await worker.carrier.carry(charge) is End.SETTLED
    assert [movement.amount for movement in scene.sim.movements] == [AMOUNT_MINOR]


async def test_out_of_order_the_stale_payload_loses(scene: Scene) -> None:
    """A decline of the first try is taken in after the second try's success: the row stays as it is."""
    a, b = scene.worker(), scene.worker()
    intent = await a.intend(await scene.prepare(a, card="pm_card_declineOnceThenSucceed"), CONFIRM)
    stale = await a.transmit(intent)
    assert stale.http_status == 402
    await scene.set_age(WINDOW_SECONDS)
    assert set((await b.work()).values()) == {End.SETTLED}
    await b.sender.send_first(await scene.charge(), CONFIRM, reason="retry")
    on_record = row_of(await read_ledger(scene))
    assert on_record["state"] == State.SUCCEEDED
    assert (await a.record(intent, stale)).state is State.SUCCEEDED
    assert row_of(await read_ledger(scene)) == on_record
    assert len(scene.sim.movements) == 1
    await scene.audit()


# --- each condition alone ----------------------------------------------------------------------------------


class Pauses:
    """Time that passes only by being slept through."""

    def __init__(self) -> None:
        self.now_seconds = 0.0
        self.slept_seconds: list[float] = []

    async def sleep(self, seconds: float) -> None:
        """Let the time pass at once, and remember how long it was."""
        self.slept_seconds.append(seconds)
        self.now_seconds += seconds

    def clock(self) -> float:
        """Return the time."""
        return self.now_seconds


@pytest.fixture
def pauses(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Pauses:
    """The pauses of the send path, as long as in production, and none of them waited for."""
    pauses = Pauses()
    monkeypatch.setattr(carry, "BACKOFF_SECONDS", BACKOFF_SECONDS)
    monkeypatch.setattr(carry, "BACKOFF_SECONDS_MAX", BACKOFF_SECONDS_MAX)
    monkeypatch.setattr(carry, "asyncio", SimpleNamespace(sleep=pauses.sleep))
    return pauses


async def test_a_429_part_way_is_waited_out(scene: Scene, pauses: Pauses) -> None:
    """Sent, lost; sent again, 429 with Retry-After: as long as it says, then the same key once more."""
    await scene.plan()
    scene.sim.set_faults(
        fault("drop", name="lost", operation=CONFIRM, match={"only": [1]}),
        fault(
            "error",
            name="429",
            status=429,
            headers={"Retry-After": "7"},
            operation=CONFIRM,
            match={"only": [2]},
        ),
    )
    limiter = LocalLimiter(RATE_PER_SECOND, clock=pauses.clock)
    assert set((await scene.worker(limiter=limiter).work()).values()) == {End.SETTLED}
    assert pauses.slept_seconds == [BACKOFF_SECONDS, 7.0]
    assert scene.wire == ["create v1", "confirm v1", "confirm v1", "confirm v1"]
    assert [request.status for request in scene.posts[1:]] == [None, 429, 200]
    assert len({(request.key, request.body_sha256) for request in scene.posts[1:]}) == 1
    assert limiter.rate_per_second(Endpoint.CONFIRM) < RATE_PER_SECOND
    assert len(scene.sim.movements) == 1
    await scene.audit()


@pytest.mark.parametrize("operation", [CREATE, CONFIRM], ids=["create", "confirm"])
async def test_503_is_met_by_the_backoff_schedule(scene: Scene, pauses: Pauses, operation: Any) -> None:
    """503 without end: each pause doubles up to a limit, then the charge is due later, under the same key."""
    await scene.plan()
    scene.fault("error", status=503, operation=operation)
    assert set((await scene.work()).values()) == {End.DEFERRED}
    assert pauses.slept_seconds == [
        min(BACKOFF_SECONDS * 2**tried, BACKOFF_SECONDS_MAX) for tried in range(TRIES_MAX)
    ]
    sent = [request for request in scene.posts if request.status == 503]
    assert len({(request.key, request.body_sha256) for request in sent}) == 1
    assert len(sent) == TRIES_MAX
    due_at = await scene.due_at()
    assert due_at is not None
    assert (due_at - await scene.now()).total_seconds() == LATER_SECONDS
    scene.clear_faults()
    await scene.set_age(LATER_SECONDS)
    assert set((await scene.work()).values()) == {End.SETTLED}
    assert (await scene.charge()).version_of(operation) == 1
    assert len(scene.sim.movements) == 1
    await scene.audit()


@pytest.mark.parametrize("reference", ELSEWHERE.values(), ids=list(ELSEWHERE))
def test_every_condition_has_its_test(reference: str) -> None:
    """What is said to be shown by a test is there under that name."""
    path, name = reference.split("::")
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    assert name in {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
