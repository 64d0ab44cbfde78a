"""Ways around a cap that somebody could try, or stumble into: none lets a unit more through."""

import uuid

import pytest

from activities.ledger.cap import Ask, CapLedger, Told
from activities.ledger.database import open_pool
from deploy.postgres import Database
from tests.proxy.stage import ACCOUNT, CARD, CUSTOMER, Stage, open_stage
from workflows.domain.cap import Outcome
from workflows.domain.vault_keys import parse_vault_key

BAD_CARD = "pm_card_chargeCustomerFail_1"


async def test_no_key_spends_what_another_one_holds(stage: Stage) -> None:
    """A key may finish what another began, within what is held for it, and can't have more of that held."""
    owner = await stage.caller_with({"usd": 50_000})
    other = await stage.caller_with({"usd": 10})
    made = await owner.create(1_000, key="a", capture_method="manual")
    path = f"/v1/payment_intents/{made.body['id']}"
    assert (await owner.confirm(made.body["id"], key="b")).body["status"] == "requires_capture"
    more = await other.post(f"{path}/capture", {"amount_to_capture": 1_001}, Idempotency_Key="c")
    assert (more.status, more.code) == (403, "held_by_another")
    grown = await other.post(f"{path}/increment_authorization", {"amount": 40_000}, Idempotency_Key="d")
    assert grown.code == "held_by_another"
    assert (
        await other.post(f"{path}/capture", {"amount_to_capture": 900}, Idempotency_Key="e")
    ).status == 200
    await owner.get(path)
    rows = await stage.fetch(
        "SELECT cap_minor, settled_minor, held_minor FROM vault_budgets ORDER BY cap_minor"
    )
    assert [tuple(row) for row in rows] == [(10, 0, 0), (50_000, 900, 0)]


async def test_a_currency_changed_after_the_create_counts_as_what_it_is(stage: Stage) -> None:
    """An update from a capped currency to one without a cap is no way out."""
    caller = await stage.caller_with({"usd": 5_000})
    made = await caller.create(1_000, key="a")
    path = f"/v1/payment_intents/{made.body['id']}"
    assert (await caller.post(path, {"currency": "eur"}, Idempotency_Key="b")).status == 200
    assert (await caller.confirm(made.body["id"], key="c")).code == "spend_cap_exceeded"
    assert stage.sim.movements == []


async def test_one_key_in_two_accounts_is_two_payments(database: Database) -> None:
    """Stripe knows idempotency keys per account, so each payment is counted, under each account's own key."""
    async with open_stage(database, connected_accounts="acct_c1,acct_c2") as stage:
        for account in ("acct_c1", "acct_c2"):
            stage.sim.seed("cus_c", "pm_card_visa_c", account=account)
            caller = await stage.caller_with({"usd": 1_000}, account=account)
            fields = {"currency": "usd", "customer": "cus_c", "payment_method": "pm_card_visa_c"}
            one_call = fields | {"amount": 600, "confirm": "true"}
            said = await caller.post("/v1/payment_intents", one_call, Idempotency_Key="same")
            assert said.status == 200
            other = "acct_c1" if account == "acct_c2" else "acct_c2"
            said = await caller.post(
                "/v1/payment_intents", one_call, Idempotency_Key="same", Stripe_Account=other
            )
            assert said.code == "account_not_allowed"
            assert (await caller.get("/v1/payment_intents")).status == 200
        assert sorted((entry.account, entry.amount) for entry in stage.sim.movements) == [
            ("acct_c1", 600),
            ("acct_c2", 600),
        ]
        rows = await stage.fetch("SELECT settled_minor, held_minor FROM vault_budgets")
        assert [tuple(row) for row in rows] == [(600, 0)] * 2


async def test_what_others_pay_after_a_decline_counts_all_the_same(stage: Stage) -> None:
    """Declined, given back, then paid at Stripe itself with another key: once seen, it counts."""
    caller = await stage.caller_with({"usd": 1_500})
    made = await caller.create(1_000, key="a", payment_method=BAD_CARD)
    assert (await caller.confirm(made.body["id"], key="b", card=BAD_CARD)).status == 402
    direct = stage.caller("sk_test_direct", stage.sim.url)
    assert (await direct.confirm(made.body["id"], key="c")).status == 200
    assert (await caller.get(f"/v1/payment_intents/{made.body['id']}")).body["status"] == "succeeded"
    standing = await stage.settled_standing()
    assert (standing["settled_minor"], standing["excess_minor"]) == (1_000, 0)
    assert (await caller.pay(501, name="d")).code == "spend_cap_exceeded"
    assert [row["kind"] for row in await stage.fetch("SELECT kind FROM vault_alarms")] == ["paid_elsewhere"]


async def test_a_refund_that_fails_gives_its_share_back(stage: Stage) -> None:
    """A refund that Stripe refuses moves nothing, and one over the cap is not sent."""
    paid = await (await stage.caller_with({"usd": 5_000})).pay(1_000, name="a")
    caller = await stage.caller_with({"usd": 1_200})
    refund = {"payment_intent": paid.body["id"], "amount": 1_001}
    assert (await caller.post("/v1/refunds", refund, Idempotency_Key="r")).status == 400
    over = await caller.post("/v1/refunds", refund | {"amount": 1_201}, Idempotency_Key="s")
    assert over.code == "spend_cap_exceeded"
    assert (await caller.post("/v1/refunds", refund | {"amount": 1_000}, Idempotency_Key="t")).status == 200
    await caller.get(f"/v1/payment_intents/{paid.body['id']}")
    rows = await stage.fetch("SELECT settled_minor, held_minor FROM vault_budgets WHERE cap_minor = 1200")
    assert [tuple(row) for row in rows] == [(1_000, 0)]


@pytest.mark.parametrize(("received", "settled"), [(0, 0), (300, 300)])
async def test_what_was_captured_before_a_cancel_has_moved(stage: Stage, received: int, settled: int) -> None:
    """What was captured in part and then canceled settles that part; canceled alone settles nothing."""
    key = parse_vault_key(await stage.issue({"usd": 1_000}))
    assert key is not None
    async with open_pool(stage.database.proxy_url, connections=2) as pool:
        ledger = CapLedger(pool)
        ledger.accounts = {ACCOUNT: "test"}

        async def tell(effect: str, status: str, amount_received: int) -> None:
            ask = Ask(
                call_id=str(uuid.uuid4()),
                key_sha256=key.sha256.hex(),
                method="POST",
                path="/",
                endpoint="POST /v1/payment_intents",
                effect=effect,
                intent=None if effect == "prepare" else "pi_1",
                counts=effect == "confirm",
            )
            assert (await ledger.admit(ask)).decision == "forward"
            told = Told(
                call_id=ask.call_id, outcome=Outcome.EXECUTED, counts=True, http_status=200, intent="pi_1",
                intent_status=status, amount=1_000, amount_received=amount_received, currency="usd",
            )  # fmt: skip
            ledger.record(told)
            await ledger.recorded(told.call_id)

        await tell("prepare", "requires_confirmation", 0)
        await tell("confirm", "requires_capture", 0)
        assert (await stage.standing())["held_minor"] == 1_000
        await tell("cancel", "canceled", received)
        await ledger.drain(5)
    standing = await stage.standing()
    assert (standing["settled_minor"], standing["held_minor"], standing["excess_minor"]) == (settled, 0, 0)


async def test_two_payments_at_once_under_one_key_are_one(stage: Stage) -> None:
    """The same key for two amounts: whichever Stripe takes is counted, and nothing is left held."""
    caller = await stage.caller_with({"usd": 5_000})
    fields = {"currency": "usd", "customer": CUSTOMER, "payment_method": CARD, "confirm": "true"}
    first = await caller.post("/v1/payment_intents", fields | {"amount": 700}, Idempotency_Key="k")
    second = await caller.post("/v1/payment_intents", fields | {"amount": 4_000}, Idempotency_Key="k")
    assert (first.status, second.status) == (200, 400)
    standing = await stage.settled_standing()
    assert (standing["settled_minor"], standing["held_minor"], standing["open_calls"]) == (700, 0, 0)
