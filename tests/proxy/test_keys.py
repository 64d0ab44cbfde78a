"""Who may call what: scopes, accounts, expiry, and a revocation that every process obeys at once."""

import base64

import pytest

from deploy.postgres import Database
from tests.proxy.stage import CARD, CUSTOMER, Stage, open_stage, proxy_settings
from worker.proxy.server import open_proxy
from workflows.domain.vault import ENDPOINTS, SCOPES, Effect, Scope
from workflows.domain.vault_keys import Mode


async def test_a_key_that_nobody_issued_is_refused(stage: Stage) -> None:
    """Real keys, other texts and none at all get 401 with a code of their own, and leave no row."""
    issued = await stage.issue({"usd": 1_000})
    for key in ("", "sk_test_theRealOne", "vk_test_short", issued[:-1] + ("a" if issued[-1] != "a" else "b")):
        said = await stage.caller(key).get("/v1/account")
        assert (said.status, said.code, said.headers["Stripe-Should-Retry"]) == (
            401,
            "vault_key_unknown",
            "false",
        )
    assert await stage.fetch("SELECT FROM vault_calls") == []


async def test_a_key_may_come_as_a_password_free_user_name(stage: Stage) -> None:
    """Basic authentication, as curl -u sends it, is as good as a bearer token."""
    key = await stage.issue({"usd": 1_000})
    caller = stage.caller(key)
    basic = base64.b64encode(f"{key}:".encode()).decode()
    assert (await caller.get("/v1/account", Authorization=f"Basic {basic}")).status == 200
    assert (await caller.get("/v1/account", Authorization=f"Basic {basic[:-4]}!!!!")).status == 401


async def test_a_revocation_holds_from_the_next_request_in_every_process(stage: Stage) -> None:
    """Two proxies took the key a moment ago; once it is revoked, neither does, for reads either."""
    settings = proxy_settings(stage.database, stage.sim.url)
    key = await stage.issue({"usd": 1_000})
    async with open_proxy(settings) as (other_url, _):
        callers = [stage.caller(key), stage.caller(key, other_url)]
        assert [(await caller.get("/v1/account")).status for caller in callers] == [200, 200]
        await stage.fetch(
            "UPDATE vault_keys SET revoked_at = ledger_now(), revoked_by = 'me', revoked_reason = 'leaked'"
        )
        said = [await caller.get("/v1/account") for caller in callers]
    assert [(one.status, one.code) for one in said] == [(401, "vault_key_revoked")] * 2


async def test_an_expired_key_is_refused(stage: Stage) -> None:
    """Expiry goes by the ledger's clock."""
    caller = await stage.caller_with({"usd": 1_000}, expires_in_seconds=3_600)
    assert (await caller.get("/v1/account")).status == 200
    await stage.fetch("SELECT move_ledger_clock(3600, NULL)")
    assert (await caller.get("/v1/account")).code == "vault_key_expired"


async def test_a_key_is_for_one_account_and_one_mode(stage: Stage) -> None:
    """Another account's header, an account without a real key and a live key on a test proxy get 403."""
    mine = await stage.caller_with({"usd": 1_000})
    assert (await mine.get("/v1/account", Stripe_Account="acct_sim")).status == 200
    assert (await mine.get("/v1/account", Stripe_Account="acct_other")).code == "account_not_allowed"
    theirs = await stage.caller_with({"usd": 1_000}, account="acct_other")
    assert (await theirs.get("/v1/account")).code == "account_not_allowed"
    live = await stage.caller_with({"usd": 1_000}, mode=Mode.LIVE)
    said = await live.get("/v1/account")
    assert (said.status, said.code) == (403, "mode_not_allowed")


async def test_a_connected_account_is_named_to_stripe_by_the_proxy(database: Database) -> None:
    """Whether or not the caller names it, the account of the key is the one that is charged."""
    async with open_stage(database, connected_accounts="acct_c1,acct_c2") as stage:
        stage.sim.seed("cus_c", "pm_card_visa_c", account="acct_c1")
        caller = await stage.caller_with({"usd": 1_000}, account="acct_c1")
        fields = {"amount": 500, "currency": "usd", "customer": "cus_c", "payment_method": "pm_card_visa_c"}
        made = await caller.post("/v1/payment_intents", fields, Idempotency_Key="a")
        path = f"/v1/payment_intents/{made.body['id']}/confirm"
        paid = await caller.post(
            path, {"payment_method": "pm_card_visa_c"}, Idempotency_Key="b", Stripe_Account="acct_c1"
        )
        assert paid.status == 200
        assert [(entry.account, entry.amount) for entry in stage.sim.movements] == [("acct_c1", 500)]


@pytest.mark.parametrize("scope", [Scope.BILLING, Scope.PLANNING, Scope.RECONCILE, Scope.REFUND])
def test_a_scope_is_part_of_the_catalog(scope: Scope) -> None:
    """Planning reads, reconciling reads and cancels, and only two scopes can move money at all."""
    effects = {ENDPOINTS[name] for name in SCOPES[scope]}
    moves = effects & {
        Effect.PREPARE,
        Effect.CHANGE,
        Effect.CONFIRM,
        Effect.CAPTURE,
        Effect.INCREMENT,
        Effect.REFUND,
    }
    assert moves == {
        Scope.BILLING: {Effect.PREPARE, Effect.CONFIRM},
        Scope.REFUND: {Effect.REFUND},
    }.get(scope, set())


async def test_a_planning_key_reads_customers_and_nothing_else(stage: Stage) -> None:
    """Customers and their payment methods yes, PaymentIntents and writes no."""
    caller = await stage.caller_with(None, scope="planning", allow=tuple(SCOPES[Scope.PLANNING]))
    assert (await caller.get(f"/v1/customers/{CUSTOMER}")).status == 200
    assert (await caller.get(f"/v1/customers/{CUSTOMER}/payment_methods?type=card")).status == 200
    assert (await caller.get("/v1/payment_intents")).code == "endpoint_not_allowed"
    assert (await caller.create(100, key="k")).code == "endpoint_not_allowed"


async def test_a_key_without_a_budget_moves_no_money(stage: Stage) -> None:
    """Whatever its allowlist says: a confirm by it is refused, even of what another key holds already."""
    paying = await stage.caller_with({"usd": 1_000})
    made = await paying.create(500, key="k", payment_method=CARD)
    caller = await stage.caller_with(None)
    said = await caller.confirm(made.body["id"], key="c")
    assert (said.status, said.code) == (403, "no_budget")


async def test_every_call_of_a_known_key_is_in_the_audit(stage: Stage) -> None:
    """Who, what, how much as asked and as reported, Stripe's id, status, decision: a row per call."""
    caller = await stage.caller_with({"usd": 1_000})
    paid = await caller.pay(700, name="a")
    await caller.confirm(paid.body["id"], key="confirm_a")
    await caller.pay(301, name="b")
    await caller.post("/v1/charges", {"amount": 1})
    await stage.settled_standing()
    rows = await stage.fetch("SELECT * FROM vault_audit ORDER BY seq")
    shown = [
        (
            row["method"],
            row["path"].rpartition("/")[2],
            row["idempotency_key"],
            row["decision"],
            row["http_status"],
        )
        for row in rows
    ]
    assert shown == [
        ("POST", "payment_intents", "create_a", "forward", 200),
        ("POST", "confirm", "confirm_a", "forward", 200),
        ("POST", "confirm", "confirm_a", "forward", 200),
        ("POST", "payment_intents", "create_b", "forward", 200),
        ("POST", "confirm", "confirm_b", "spend_cap_exceeded", None),
        ("POST", "charges", None, "endpoint_not_allowed", None),
    ]
    assert [row["replayed"] for row in rows[:4]] == [False, False, True, False]
    assert (rows[0]["asked_minor"], rows[0]["asked_currency"]) == (700, "usd")
    assert (rows[1]["reported_minor"], rows[1]["request_id"]) == (700, paid.headers["Request-Id"])
    assert all(row["key_id"] and row["latency_ms"] is not None for row in rows[:4])
