"""Unknown outcomes are looked up until they are known; what cannot be known goes on being held."""

import asyncpg
import pytest

from tests.proxy.stage import CARD, CUSTOMER, REAL_KEY, Stage, proxy_settings
from worker.proxy.parts import Parts
from worker.proxy.server import open_parts
from worker.proxy.sweep import settle_unknown

BAD_CARD = "pm_card_chargeCustomerFail_1"
CREATE = {"amount": 1_000, "currency": "usd", "customer": CUSTOMER, "payment_method": CARD, "confirm": "true"}


def _lose(place: str, path: str = "/confirm$") -> dict[str, object]:
    return {
        "name": "lose",
        "match": {"path": path, "method": "POST"},
        "place": place,
        "effect": {"kind": "drop"},
    }


async def _sweep(stage: Stage) -> Parts:
    async with open_parts(proxy_settings(stage.database, stage.sim.url)) as parts:
        await settle_unknown(parts, older_than_seconds=0)
        return parts


async def test_a_paid_unknown_is_settled(stage: Stage) -> None:
    """The answer was lost and the money moved: the sweep finds it."""
    stage.sim.set_faults(_lose("after"))
    caller = await stage.caller_with({"usd": 1_000})
    assert (await caller.pay(1_000, name="a")).status == 504
    await _sweep(stage)
    standing = await stage.standing()
    assert (standing["settled_minor"], standing["held_minor"], standing["open_calls"]) == (1_000, 0, 0)


async def test_a_declined_unknown_is_released_by_its_charge(stage: Stage) -> None:
    """The lost answer was a decline: the failed charge shows that the confirm was executed."""
    stage.sim.set_faults(_lose("after"))
    caller = await stage.caller_with({"usd": 1_000})
    assert (await caller.pay(1_000, name="a", card=BAD_CARD)).status == 504
    await _sweep(stage)
    standing = await stage.standing()
    assert (standing["settled_minor"], standing["held_minor"], standing["open_calls"]) == (0, 0, 0)


async def test_a_charge_of_another_confirm_releases_nothing(stage: Stage) -> None:
    """One failed charge, known by its own answer, says nothing about the confirm that no answer came to."""
    caller = await stage.caller_with({"usd": 1_000})
    made = await caller.create(1_000, key="create")
    assert (await caller.confirm(made.body["id"], key="declined", card=BAD_CARD)).status == 402
    stage.sim.set_faults(_lose("before"))
    assert (await caller.confirm(made.body["id"], key="open")).status == 504
    await _sweep(stage)
    standing = await stage.standing()
    assert (standing["held_minor"], standing["open_calls"]) == (1_000, 1)


async def test_a_confirm_that_may_still_run_is_held_however_old(stage: Stage) -> None:
    """A stored 500 is rolled forward two days later: by then the money is still held, and then settled."""
    late = {"kind": "late", "seconds": 2 * 86_400}
    stage.sim.set_faults({"name": "late", "match": {"path": "/confirm$"}, "place": "before", "effect": late})
    caller = await stage.caller_with({"usd": 1_000}, expires_in_seconds=10 * 86_400)
    assert (await caller.pay(1_000, name="a")).status == 500
    for _ in range(2):
        await stage.fetch("SELECT move_ledger_clock(offset_seconds + 86000, NULL) FROM ledger_clock")
        stage.sim.clock.advance(86_000)
        await _sweep(stage)
        assert (await stage.standing())["held_minor"] == 1_000
    stage.sim.clock.advance(10_000)
    await stage.fetch("SELECT move_ledger_clock(offset_seconds + 86000, NULL) FROM ledger_clock")
    await _sweep(stage)
    assert (await stage.standing())["settled_minor"] == 1_000


@pytest.mark.parametrize(("card", "settled"), [(CARD, 1_000), (BAD_CARD, 0)])
async def test_a_create_that_nobody_named_is_found_by_its_key(stage: Stage, card: str, settled: int) -> None:
    """The lost answer of a one-call payment: the event of its creation shows the key."""
    stage.sim.set_faults(_lose("after", "^/v1/payment_intents$"))
    caller = await stage.caller_with({"usd": 1_000})
    lost = await caller.post("/v1/payment_intents", CREATE | {"payment_method": card}, Idempotency_Key="k")
    assert lost.status == 504
    for _ in range(2):  # found, then looked at
        await _sweep(stage)
    standing = await stage.standing()
    assert (standing["settled_minor"], standing["held_minor"], standing["open_calls"]) == (settled, 0, 0)


async def test_a_create_that_left_no_trace_is_held(stage: Stage) -> None:
    """No event with its key proves nothing: it may be on its way."""
    stage.sim.set_faults(_lose("before", "^/v1/payment_intents$"))
    caller = await stage.caller_with({"usd": 1_000})
    assert (await caller.post("/v1/payment_intents", CREATE, Idempotency_Key="k")).status == 504
    await _sweep(stage)
    assert (await stage.standing())["held_minor"] == 1_000


async def test_a_refund_that_nobody_answered_for_is_found_by_its_key(stage: Stage) -> None:
    """The lost answer of a refund: the event of its making shows the key, and what it gave back counts."""
    paid = await (await stage.caller_with({"usd": 1_000})).pay(1_000, name="a")
    stage.sim.set_faults(_lose("after", "^/v1/refunds$"))
    caller = await stage.caller_with({"usd": 700})
    refund = {"payment_intent": paid.body["id"], "amount": 600}
    assert (await caller.post("/v1/refunds", refund, Idempotency_Key="r")).status == 504
    budget = "SELECT settled_minor, held_minor FROM vault_budgets WHERE cap_minor = 700"
    assert [tuple(row) for row in await stage.fetch(budget)] == [(0, 600)]
    await _sweep(stage)
    assert [tuple(row) for row in await stage.fetch(budget)] == [(600, 0)]


async def test_two_sweeps_do_not_ask_twice(stage: Stage) -> None:
    """What one process has taken, another leaves alone for a while."""
    stage.sim.set_faults(_lose("before"))
    caller = await stage.caller_with({"usd": 1_000})
    await caller.pay(1_000, name="a")
    settings = proxy_settings(stage.database, stage.sim.url)
    async with open_parts(settings) as one, open_parts(settings) as other:
        await stage.fetch("SELECT move_ledger_clock(180, NULL)")
        assert await settle_unknown(one, older_than_seconds=120) == 1
        assert await settle_unknown(other, older_than_seconds=120) == 0


async def test_the_proxys_role_can_do_nothing_but_count(stage: Stage) -> None:
    """It can't mark a charge paid, change the audit, raise a cap, issue a key or release a hold."""
    await stage.caller_with({"usd": 1_000})
    connection = await asyncpg.connect(stage.database.proxy_url)
    forbidden = [
        "UPDATE charges SET state = 'succeeded'",
        "SELECT * FROM charges",
        "UPDATE billing_runs SET phase = 'closed'",
        "UPDATE vault_calls SET decision = 'forward'",
        "DELETE FROM vault_calls",
        "DELETE FROM vault_answers",
        "UPDATE vault_budgets SET cap_minor = 1000000",
        "UPDATE vault_intents SET held_minor = 0",
        "DELETE FROM vault_open",
        "UPDATE vault_keys SET revoked_at = NULL",
        "INSERT INTO vault_alarms (at, account, intent, kind) VALUES (now(), 'a', 'b', 'c')",
        "SELECT vault_hold(NULL, 'b', 1, 'usd')",
        "SELECT vault_count('a', 'b')",
        "SELECT move_ledger_clock(1, NULL)",
    ]
    try:
        for statement in forbidden:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)
    finally:
        await connection.close()


async def test_a_worker_can_not_touch_what_is_counted(stage: Stage) -> None:
    """The workers' role issues and revokes keys; audit, holds and caps are out of its reach."""
    await stage.caller_with({"usd": 1_000})
    connection = await asyncpg.connect(stage.database.app_url)
    forbidden = [
        "UPDATE vault_calls SET decision = 'forward'",
        "DELETE FROM vault_calls",
        "UPDATE vault_budgets SET cap_minor = 1000000",
        "UPDATE vault_intents SET held_minor = 0",
        "DELETE FROM vault_open",
        "SELECT vault_answer('[]')",
    ]
    try:
        for statement in forbidden:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)
    finally:
        await connection.close()
    assert REAL_KEY
