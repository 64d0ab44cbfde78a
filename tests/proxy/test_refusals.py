"""What a refusal says to whoever holds the key: enough to know what to do, and nothing secret."""

import asyncio
import json
import logging
import re

import pytest

from tests.proxy.secret_scan import malformed_requests, send_raw
from tests.proxy.stage import ACCOUNT, CUSTOMER, REAL_KEY, Caller, Said, Stage
from workflows.domain.vault import SCOPES, Scope
from workflows.domain.vault_keys import Mode

BILLING = tuple(SCOPES[Scope.BILLING])


def message(said: Said) -> str:
    """The error's text."""
    text: str = said.body["error"]["message"]
    return text


async def test_over_the_cap_it_says_what_was_asked_left_and_capped(stage: Stage) -> None:
    """The amounts of this very request, also where only the proxy's own record knows what a confirm moves."""
    caller = await stage.caller_with({"usd": 2_500})
    assert (await caller.pay(1_000, name="a")).status == 200
    over = await caller.pay(1_750, name="b")
    assert over.status == 429
    assert "17.50 USD asked for, 15.00 USD left of 25.00 USD" in message(over)
    other = await caller.post(
        "/v1/payment_intents",
        {"amount": 700, "currency": "zzz", "customer": CUSTOMER, "confirm": "true"},
        Idempotency_Key="z",
    )
    assert "700 zzz (smallest units) asked for, and the key has no cap in this currency" in message(other)


async def test_what_a_daily_cap_has_left_is_today_s(stage: Stage) -> None:
    """What was settled yesterday is not left out of today."""
    caller = await stage.caller_with({"usd": 2_000}, daily=True, expires_in_seconds=10 * 86_400)
    assert (await caller.pay(1_500, name="a")).status == 200
    await stage.fetch("SELECT move_ledger_clock(86400, NULL)")
    assert (await stage.settled_standing())["settled_minor"] == 0
    assert "20.01 USD asked for, 20.00 USD left of 20.00 USD" in message(await caller.pay(2_001, name="b"))


async def test_an_endpoint_that_is_not_allowed_is_named(stage: Stage) -> None:
    """Method and path: one that another key may have, and one that no key can."""
    caller = await stage.caller_with({"usd": 1_000}, allow=BILLING)
    refund = await caller.post("/v1/refunds", {"payment_intent": "pi_1"}, Idempotency_Key="r")
    assert message(refund).endswith("does not allow this endpoint: POST /v1/refunds.")
    never = await caller.post("/v1/payouts", {"amount": 1}, Idempotency_Key="p")
    assert message(never).endswith("POST /v1/payouts can't be allowed to any key.")


async def test_an_account_or_mode_that_does_not_fit_is_named(stage: Stage) -> None:
    """Whose key it is, what was asked for, and what the proxy has."""
    mine = await stage.caller_with({"usd": 1_000})
    said = await mine.get("/v1/account", Stripe_Account="acct_other")
    assert f"the key is for {ACCOUNT}, the request for acct_other" in message(said)
    theirs = await stage.caller_with({"usd": 1_000}, account="acct_other")
    assert "the proxy has no Stripe key for acct_other" in message(await theirs.get("/v1/account"))
    live = await stage.caller_with({"usd": 1_000}, mode=Mode.LIVE)
    assert f"the proxy's key for {ACCOUNT} is a test key" in message(await live.get("/v1/account"))


async def test_what_is_wrong_with_a_key_is_said_once(stage: Stage) -> None:
    """None, a Stripe key, half a vault key, one that nobody issued, an ended one: each in its own words."""
    issued = await stage.issue({"usd": 1_000})
    forged = issued[:-1] + ("a" if issued[-1] != "a" else "b")
    texts = [message(await _ask(stage, key)) for key in (REAL_KEY, issued[:40], forged)]
    assert "a Stripe key opens nothing here" in texts[0]
    assert "what the request carries is none" in texts[1]
    assert "nobody issued this one" in texts[2]
    await stage.fetch(
        "UPDATE vault_keys SET revoked_at = ledger_now(), revoked_by = 'me', revoked_reason = 'secret gossip'"
    )
    texts.append(message(await _ask(stage, issued)))
    assert issued[:18] in texts[3]
    for text in texts:
        assert text.count("vault key") == 1 + text.count("vault keys (vk_...)"), text
        assert "gossip" not in text
        assert not re.search(r"vk_test_\w{11,}", text)
        assert REAL_KEY not in text


async def _ask(stage: Stage, key: str) -> Said:
    said = await Caller(stage.session, stage.url, key).get("/v1/account")
    assert said.status == 401
    return said


async def test_what_is_hardly_http_is_refused_like_anything_else(
    stage: Stage, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Stripe's shape and a code of the proxy's; no part of the key comes back, and none is logged."""
    caplog.set_level(logging.DEBUG)
    key = await stage.issue({"usd": 1_000})
    requests = malformed_requests(key)
    answers = await asyncio.gather(*(send_raw(stage.url, request) for request in requests.values()))
    for name, answer in zip(requests, answers, strict=True):
        assert b"Stripe-Should-Retry: false" in answer, name
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] in {
            "ambiguous_request", "vault_key_unknown",
        }, name  # fmt: skip
    printed = capfd.readouterr()
    everything = b"".join(answers).decode() + caplog.text + printed.out + printed.err
    assert key[20:] not in everything
    assert "Traceback" not in everything
    said = await stage.caller(key).get(f"/v1/customers/{key}/{key}")
    assert "GET /v1/customers/(key)/(key) can't be allowed to any key" in message(said)
    assert not [row for row in await stage.fetch("SELECT path FROM vault_calls") if key[20:] in row["path"]]
    told = [json.loads(record.message) for record in caplog.records if record.name == "chargeonce.proxy"]
    assert {line["event"] for line in told} == {
        "proxy_call", "request_malformed", "connection_failed",
    }  # fmt: skip


async def test_what_the_proxy_fails_at_itself_is_unknown(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug is 500 in Stripe's shape, which proves nothing; the log has its place, and not its words."""
    caller = await stage.caller_with({"usd": 1_000})

    def fail(*_: object) -> None:
        raise KeyError(caller.key)

    monkeypatch.setattr("worker.proxy.app.read_ask", fail)
    said = await caller.get("/v1/account")
    assert (said.status, said.code) == (500, "proxy_failed")
    assert "Stripe-Should-Retry" not in said.headers
    [line] = [json.loads(one.message) for one in caplog.records if "request_failed" in one.message]
    assert (line["error"], line["at"].partition(":")[0]) == ("KeyError", "test_refusals.py")
    assert caller.key not in caplog.text
