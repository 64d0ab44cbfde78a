"""Where money counts, and when what was held for it is given back."""

import asyncio

import pytest

from tests.proxy.stage import CARD, CUSTOMER, Stage

BAD_CARD = "pm_card_chargeCustomerFail_1"
DROP_ANSWER = {
    "name": "lost",
    "match": {"path": "/confirm$", "only": [1]},
    "place": "after",
    "effect": {"kind": "drop"},
}
CREATE = {"amount": 1_000, "currency": "usd", "customer": CUSTOMER, "payment_method": CARD, "confirm": "true"}


async def test_a_payment_counts_once(stage: Stage) -> None:
    """A create and a confirm through the proxy move the money, and it counts once."""
    caller = await stage.caller_with({"usd": 5_000})
    paid = await caller.pay(1_200, name="a")
    assert (paid.status, paid.body["status"]) == (200, "succeeded")
    standing = await stage.settled_standing()
    assert (standing["settled_minor"], standing["held_minor"]) == (1_200, 0)


async def test_the_cap_is_exact_at_the_last_unit(stage: Stage) -> None:
    """Exactly the cap fits, and one unit more does not, with nothing sent."""
    caller = await stage.caller_with({"usd": 2_000})
    assert (await caller.pay(1_500, name="a")).status == 200
    sent = len(stage.sim.requests)
    over = await caller.pay(501, name="b")
    assert (over.status, over.code) == (429, "spend_cap_exceeded")
    assert over.headers["Stripe-Should-Retry"] == "false"
    assert len(stage.sim.requests) == sent + 1, "the create went out, the confirm did not"
    assert (await caller.pay(500, name="c")).status == 200
    assert (await stage.settled_standing())["settled_minor"] == 2_000


async def test_a_retry_and_a_new_key_hold_nothing_more(stage: Stage) -> None:
    """With room for one payment, the same confirm may go out again under the same and under another key."""
    stage.sim.set_faults(DROP_ANSWER)
    caller = await stage.caller_with({"usd": 1_000})
    made = await caller.create(1_000, key="create")
    lost = await caller.confirm(made.body["id"], key="one")
    assert (lost.status, lost.code) == (504, "upstream_no_answer")
    again = await caller.confirm(made.body["id"], key="one")
    assert (again.status, again.headers["Idempotent-Replayed"]) == (200, "true")
    other = await caller.confirm(made.body["id"], key="two")
    assert (other.status, other.code) == (400, "payment_intent_unexpected_state")
    standing = await stage.settled_standing()
    assert (standing["settled_minor"], standing["held_minor"], standing["open_calls"]) == (1_000, 0, 0)


async def test_a_decline_gives_the_money_back(stage: Stage) -> None:
    """A determined decline releases what was held, so another payment of the same size fits."""
    caller = await stage.caller_with({"usd": 1_000})
    assert (await caller.pay(1_000, name="a", card=BAD_CARD)).status == 402
    assert (await caller.pay(1_000, name="b")).status == 200


async def test_a_decline_does_not_release_what_an_earlier_unknown_may_move(stage: Stage) -> None:
    """T11: the first confirm is unknown, the second declined: the money stays held, and once."""
    unknown = {"name": "hang", "match": {"key": "^one$"}, "place": "before", "effect": {"kind": "drop"}}
    stage.sim.set_faults(unknown)
    caller = await stage.caller_with({"usd": 1_000})
    made = await caller.create(1_000, key="create")
    assert (await caller.confirm(made.body["id"], key="one")).status == 504
    assert (await caller.confirm(made.body["id"], key="two", card=BAD_CARD)).status == 402
    standing = await stage.settled_standing()
    assert (standing["held_minor"], standing["unresolved_minor"], standing["open_calls"]) == (1_000, 1_000, 1)
    assert (await caller.pay(50, name="more")).code == "spend_cap_exceeded"
    stage.sim.set_faults()
    assert (await caller.confirm(made.body["id"], key="one")).status == 200  # the frozen send, come alive
    assert (await stage.settled_standing())["settled_minor"] == 1_000


async def test_a_cancel_gives_the_money_back_whatever_is_unknown(stage: Stage) -> None:
    """A canceled PaymentIntent can never succeed, so an open confirm of it holds nothing."""
    stage.sim.set_faults(
        {"name": "hang", "match": {"path": "/confirm$"}, "place": "before", "effect": {"kind": "drop"}}
    )
    caller = await stage.caller_with({"usd": 1_000})
    made = await caller.create(1_000, key="create")
    intent = made.body["id"]
    assert (await caller.confirm(intent, key="one")).status == 504
    assert (await caller.post(f"/v1/payment_intents/{intent}/cancel")).status == 200
    assert (await stage.settled_standing())["held_minor"] == 0


async def test_a_lookup_settles_an_unknown_outcome(stage: Stage) -> None:
    """A GET that shows the PaymentIntent paid settles it; one that shows it open releases nothing."""
    stage.sim.set_faults(
        {"name": "hang", "match": {"key": "^never$"}, "place": "before", "effect": {"kind": "drop"}},
        {"name": "lost", "match": {"key": "^lost$"}, "place": "after", "effect": {"kind": "drop"}},
    )
    caller = await stage.caller_with({"usd": 2_000})
    never = await caller.create(1_000, key="create_a")
    lost = await caller.create(1_000, key="create_b")
    assert (await caller.confirm(never.body["id"], key="never")).status == 504
    assert (await caller.confirm(lost.body["id"], key="lost")).status == 504
    assert (await caller.get(f"/v1/payment_intents/{never.body['id']}")).body[
        "status"
    ] == "requires_confirmation"
    assert (await caller.get(f"/v1/payment_intents/{lost.body['id']}")).status == 200
    standing = await stage.settled_standing()
    assert (standing["settled_minor"], standing["held_minor"]) == (1_000, 1_000)


async def test_a_create_that_confirms_counts(stage: Stage) -> None:
    """A one-call payment counts like the two-step one, and its replay counts nothing."""
    caller = await stage.caller_with({"usd": 1_000})
    first = await caller.post("/v1/payment_intents", CREATE, Idempotency_Key="k")
    again = await caller.post("/v1/payment_intents", CREATE, Idempotency_Key="k")
    other = await caller.post("/v1/payment_intents", CREATE, Idempotency_Key="l")
    assert (first.status, again.headers.get("Idempotent-Replayed"), other.code) == (
        200,
        "true",
        "spend_cap_exceeded",
    )
    assert first.body["id"] == again.body["id"]
    standing = await stage.settled_standing()
    assert (standing["settled_minor"], standing["held_minor"]) == (1_000, 0)


async def test_a_declined_create_that_confirmed_gives_the_money_back(stage: Stage) -> None:
    """The 402 names its PaymentIntent: the hold goes over to it, and ends with it."""
    caller = await stage.caller_with({"usd": 1_000})
    parameters = CREATE | {"payment_method": BAD_CARD}
    declined = await caller.post("/v1/payment_intents", parameters, Idempotency_Key="k")
    assert declined.status == 402
    assert (await stage.settled_standing())["held_minor"] == 0


async def test_an_unknown_create_that_confirms_holds_until_its_key_answers(stage: Stage) -> None:
    """Nothing names the PaymentIntent of a lost answer, so the key holds, and its replay settles."""
    stage.sim.set_faults(
        {"name": "lost", "match": {"only": [1]}, "place": "after", "effect": {"kind": "drop"}}
    )
    caller = await stage.caller_with({"usd": 1_000})
    assert (await caller.post("/v1/payment_intents", CREATE, Idempotency_Key="k")).status == 504
    assert (await stage.settled_standing())["held_minor"] == 1_000
    assert (
        await caller.post("/v1/payment_intents", CREATE, Idempotency_Key="l")
    ).code == "spend_cap_exceeded"
    assert (await caller.post("/v1/payment_intents", CREATE, Idempotency_Key="k")).status == 200
    standing = await stage.settled_standing()
    assert (standing["settled_minor"], standing["held_minor"]) == (1_000, 0)


async def test_a_key_whose_window_has_passed_is_a_new_payment(stage: Stage) -> None:
    """Stripe forgets a key after a day: a settled one counts anew, an unknown one is not sent again."""
    caller = await stage.caller_with({"usd": 2_000}, expires_in_seconds=10 * 86_400)
    assert (await caller.post("/v1/payment_intents", CREATE, Idempotency_Key="k")).status == 200
    await _move_on(stage, 86_400)
    assert (await caller.post("/v1/payment_intents", CREATE, Idempotency_Key="k")).status == 200
    assert (await stage.settled_standing())["settled_minor"] == 2_000
    await _move_on(stage, 86_400)
    assert (
        await caller.post("/v1/payment_intents", CREATE, Idempotency_Key="k")
    ).code == "spend_cap_exceeded"

    stage.sim.set_faults(
        {"name": "lost", "match": {"key": "^u$"}, "place": "after", "effect": {"kind": "drop"}}
    )
    other = await stage.caller_with({"usd": 2_000}, expires_in_seconds=10 * 86_400)
    assert (await other.post("/v1/payment_intents", CREATE, Idempotency_Key="u")).status == 504
    await _move_on(stage, 86_400)
    late = await other.post("/v1/payment_intents", CREATE, Idempotency_Key="u")
    assert (late.status, late.code) == (400, "key_outside_window")


async def test_an_update_between_create_and_confirm_counts_what_is_moved(stage: Stage) -> None:
    """The amount at the time of the confirm is held, not the one at create."""
    caller = await stage.caller_with({"usd": 5_000})
    made = await caller.create(1_000, key="create")
    path = f"/v1/payment_intents/{made.body['id']}"
    assert (await caller.post(path, {"amount": 6_000}, Idempotency_Key="up")).status == 200
    assert (await caller.confirm(made.body["id"], key="one")).code == "spend_cap_exceeded"
    assert (await caller.post(path, {"amount": 5_000}, Idempotency_Key="down")).status == 200
    assert (await caller.confirm(made.body["id"], key="two")).status == 200
    assert (await stage.settled_standing())["settled_minor"] == 5_000


async def test_no_confirm_leaves_while_an_update_is_open(stage: Stage) -> None:
    """An update that no answer came to may still change the amount: 429 until its key has answered."""
    stage.sim.set_faults(
        {"name": "lost", "match": {"key": "^up$", "only": [1]}, "place": "after", "effect": {"kind": "drop"}}
    )
    caller = await stage.caller_with({"usd": 5_000})
    made = await caller.create(1_000, key="create")
    path = f"/v1/payment_intents/{made.body['id']}"
    assert (await caller.post(path, {"amount": 4_000}, Idempotency_Key="up")).status == 504
    locked = await caller.confirm(made.body["id"], key="one")
    assert (locked.status, locked.code, locked.headers["Stripe-Should-Retry"]) == (
        429,
        "lock_timeout",
        "true",
    )
    assert (await caller.post(path, {"amount": 4_000}, Idempotency_Key="up")).status == 200
    assert (await caller.confirm(made.body["id"], key="one")).status == 200
    assert (await stage.settled_standing())["settled_minor"] == 4_000


async def test_a_confirm_of_what_the_proxy_did_not_see_created_asks_first(stage: Stage) -> None:
    """Amount and currency come from Stripe, whatever the caller says; what is missing is Stripe's 404."""
    direct = stage.caller("sk_test_direct", stage.sim.url)
    small, large = (
        (await direct.create(900, key="a")).body["id"],
        (await direct.create(1_100, key="b")).body["id"],
    )
    caller = await stage.caller_with({"usd": 1_000})
    assert (await caller.confirm(large, key="l")).code == "spend_cap_exceeded"
    assert (await caller.confirm(small, key="s")).status == 200
    assert (await caller.confirm("pi_none", key="n")).status == 404
    assert (await stage.settled_standing())["settled_minor"] == 900


async def test_a_partial_capture_counts_what_came_in(stage: Stage) -> None:
    """Authorizing holds all of it, capturing a part settles the part and gives back the rest."""
    caller = await stage.caller_with({"usd": 1_000})
    made = await caller.create(1_000, key="create", capture_method="manual")
    path = f"/v1/payment_intents/{made.body['id']}"
    assert (await caller.confirm(made.body["id"], key="one")).body["status"] == "requires_capture"
    standing = await stage.settled_standing()
    assert (standing["held_minor"], standing["unresolved_minor"]) == (1_000, 0)
    assert (
        await caller.post(f"{path}/capture", {"amount_to_capture": 1_001}, Idempotency_Key="c")
    ).status == 429
    assert (
        await caller.post(f"{path}/capture", {"amount_to_capture": 400}, Idempotency_Key="d")
    ).status == 200
    standing = await stage.settled_standing()
    assert (standing["settled_minor"], standing["held_minor"]) == (400, 0)


async def test_currencies_do_not_mix(stage: Stage) -> None:
    """Each currency has a cap of its own, and one without a cap may not move at all."""
    caller = await stage.caller_with({"usd": 1_000, "eur": 300})
    euros = [await caller.create(300, key=f"e{number}", currency="eur") for number in range(2)]
    pounds = await caller.create(50, key="p", currency="gbp")
    assert (await caller.confirm(euros[0].body["id"], key="ce0")).status == 200
    assert (await caller.confirm(euros[1].body["id"], key="ce1")).code == "spend_cap_exceeded"
    assert (await caller.confirm(pounds.body["id"], key="cp")).code == "spend_cap_exceeded"
    assert (await caller.pay(1_000, name="d")).status == 200


async def test_a_bank_debit_stays_held_until_it_is_paid(stage: Stage) -> None:
    """`processing` is money on its way: it counts, and settles when a lookup shows it paid."""
    stage.sim.seed("cus_bank", "pm_usBankAccount_success_1")
    caller = await stage.caller_with({"usd": 1_000})
    made = await caller.create(
        1_000, key="create", customer="cus_bank", payment_method="pm_usBankAccount_success_1",
        **{"payment_method_types[]": "us_bank_account"},
    )  # fmt: skip
    paid = await caller.confirm(made.body["id"], key="one", card="pm_usBankAccount_success_1")
    assert paid.body["status"] == "processing", paid
    standing = await stage.settled_standing()
    assert (standing["held_minor"], standing["processing_minor"]) == (1_000, 1_000)
    stage.sim.clock.advance(30 * 86_400)
    await caller.get(f"/v1/payment_intents/{made.body['id']}")
    standing = await stage.settled_standing()
    assert (standing["settled_minor"], standing["held_minor"]) == (1_000, 0)


async def test_a_stale_read_releases_nothing(stage: Stage) -> None:
    """T8: a GET from before the confirm was executed comes in after `processing` was recorded."""
    stage.sim.seed("cus_bank", "pm_usBankAccount_success_1")
    slow = {"kind": "delay", "seconds": 0.5}
    stage.sim.set_faults(
        {"name": "slow", "match": {"method": "GET", "path": "/pi_"}, "place": "after", "effect": slow}
    )
    caller = await stage.caller_with({"usd": 1_000})
    made = await caller.create(
        1_000, key="create", customer="cus_bank", payment_method="pm_usBankAccount_success_1",
        **{"payment_method_types[]": "us_bank_account"},
    )  # fmt: skip
    reading = asyncio.create_task(caller.get(f"/v1/payment_intents/{made.body['id']}"))
    async with asyncio.timeout(10):
        while stage.sim.requests[-1].method != "GET":  # noqa: ASYNC110 - the journal has no event to wait for
            await asyncio.sleep(0.005)
    paid = await caller.confirm(made.body["id"], key="one", card="pm_usBankAccount_success_1")
    assert paid.body["status"] == "processing"
    assert (await reading).body["status"] == "requires_confirmation"
    assert (await stage.settled_standing())["held_minor"] == 1_000


async def test_two_callers_at_the_last_unit(stage: Stage) -> None:
    """Twenty confirms at once with room for seven: seven are paid, thirteen refused, none in between."""
    caller = await stage.caller_with({"usd": 700})
    made = [await caller.create(100, key=f"create_{number}") for number in range(20)]
    said = await asyncio.gather(
        *(caller.confirm(one.body["id"], key=f"confirm_{number}") for number, one in enumerate(made))
    )
    assert sorted(one.status for one in said) == [200] * 7 + [429] * 13
    assert (await stage.settled_standing())["settled_minor"] == 700


async def test_a_daily_cap_starts_again_at_midnight(stage: Stage) -> None:
    """What was settled on another day counts no more; what is held goes on counting."""
    caller = await stage.caller_with({"usd": 1_000}, daily=True, expires_in_seconds=10 * 86_400)
    assert (await caller.pay(1_000, name="a")).status == 200
    assert (await caller.pay(50, name="b")).code == "spend_cap_exceeded"
    await _move_on(stage, 86_400)
    assert (await caller.pay(1_000, name="c")).status == 200
    assert (await caller.pay(50, name="d")).code == "spend_cap_exceeded"


async def test_refunds_have_a_cap_of_their_own(stage: Stage) -> None:
    """A refund counts what it gives back, asked for or all that is left, once per key."""
    paying = await stage.caller_with({"usd": 5_000})
    intents = [(await paying.pay(1_000, name=name)).body["id"] for name in "abc"]
    caller = await stage.caller_with({"usd": 1_500})
    part = {"payment_intent": intents[0], "amount": 400}
    assert (await caller.post("/v1/refunds", part, Idempotency_Key="r1")).status == 200
    assert (await caller.post("/v1/refunds", part, Idempotency_Key="r1")).status == 200
    assert (
        await caller.post("/v1/refunds", {"payment_intent": intents[1]}, Idempotency_Key="r2")
    ).status == 200
    over = await caller.post("/v1/refunds", {"payment_intent": intents[2]}, Idempotency_Key="r3")
    assert over.code == "spend_cap_exceeded"
    assert (await caller.post("/v1/refunds", part)).code == "key_needed"
    rows = await stage.fetch("SELECT settled_minor, held_minor FROM vault_budgets WHERE cap_minor = 1500")
    assert [tuple(row) for row in rows] == [(1_400, 0)]


async def test_the_cap_of_a_run_follows_its_totals(stage: Stage) -> None:
    """A run's budget is what its plan says, all its keys share it, and a raised cap reaches it at once."""
    await stage.fetch(
        "INSERT INTO billing_runs (run_id, account, period, owner, phase, source, source_sha256, started_by,"
        " locked_at) VALUES ('run', 'acct_sim', '2031-03', 'o', 'locked', 's', 'x', 'me', ledger_now())"
    )
    await stage.fetch("INSERT INTO run_totals VALUES ('run', 'usd', 1, 1000, 1100)")
    caller = await stage.caller_with(scope="billing", run_id="run", budget="run")
    assert (await caller.pay(1_100, name="a")).status == 200
    assert (await caller.pay(50, name="b")).code == "spend_cap_exceeded"
    await stage.fetch("UPDATE run_totals SET cap_minor = 1300 WHERE run_id = 'run'")
    assert (await caller.pay(200, name="c")).status == 200
    assert (await stage.settled_standing())["settled_minor"] == 1_300


@pytest.mark.parametrize("reported", [1_400, 900])
async def test_what_stripe_reports_is_what_counts(stage: Stage, reported: int) -> None:
    """Money that moved otherwise than held is counted as it moved, and more than held is an alarm."""
    direct = stage.caller("sk_test_direct", stage.sim.url)
    caller = await stage.caller_with({"usd": 1_000})
    made = await caller.create(1_000, key="create")
    # Somebody with the real key changes the amount behind the proxy's back.
    assert (await direct.post(f"/v1/payment_intents/{made.body['id']}", {"amount": reported})).status == 200
    assert (await caller.confirm(made.body["id"], key="one")).status == 200
    standing = await stage.settled_standing()
    assert (standing["settled_minor"], standing["held_minor"]) == (reported, 0)
    assert standing["excess_minor"] == max(0, reported - 1_000)
    alarms = await stage.fetch("SELECT kind FROM vault_alarms")
    assert [row["kind"] for row in alarms] == (["moved_more_than_held"] if reported > 1_000 else [])


async def _move_on(stage: Stage, seconds: float) -> None:
    stage.sim.clock.advance(seconds)
    await stage.fetch("SELECT move_ledger_clock(offset_seconds + $1, NULL) FROM ledger_clock", seconds)
