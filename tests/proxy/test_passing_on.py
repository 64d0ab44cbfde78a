"""What goes through: the SDK's calls as they are, headers, streams; and what the proxy says itself."""

import asyncio
import json
import logging
import time
from typing import Any

import pytest
import stripe
from aiohttp import web

from deploy.postgres import Database
from tests.proxy.stage import ACCOUNT, CARD, CUSTOMER, REAL_KEY, Stage, open_stage, proxy_settings
from tests.stripe_sim.conftest import open_client
from worker.proxy.server import open_proxy
from workflows.domain.answer import Answer, Transport
from workflows.domain.keys import Operation
from workflows.domain.verdict import Cause, Proof, judge


async def test_the_sdk_needs_a_key_and_an_address(stage: Stage) -> None:
    """The official SDK, pointed at the proxy: create, confirm, retrieve, list, and typed errors."""
    key = await stage.issue({"usd": 5_000})
    async with open_client(stage.url, api_key=key) as client:
        intents = client.v1.payment_intents
        made = await intents.create_async(
            {"amount": 1_000, "currency": "usd", "customer": CUSTOMER, "payment_method": CARD},
            {"idempotency_key": "a"},
        )
        paid = await intents.confirm_async(made.id, {"off_session": True}, {"idempotency_key": "b"})
        assert (paid.status, paid.last_response is not None) == ("succeeded", True)
        again = await intents.confirm_async(made.id, {"off_session": True}, {"idempotency_key": "b"})
        assert again.last_response is not None
        assert again.last_response.headers["Idempotent-Replayed"] == "true"
        assert (await intents.retrieve_async(made.id)).status == "succeeded"
        assert [one.id for one in (await intents.list_async({"customer": CUSTOMER})).data] == [made.id]
        with pytest.raises(stripe.CardError) as declined:
            await intents.create_async(
                {
                    "amount": 1_000, "currency": "usd", "customer": CUSTOMER, "confirm": True,
                    "payment_method": "pm_card_chargeCustomerFail_1",
                }
            )  # fmt: skip
        assert declined.value.code == "card_declined"
        with pytest.raises(stripe.RateLimitError) as over:
            await intents.create_async(
                {
                    "amount": 9_000,
                    "currency": "usd",
                    "customer": CUSTOMER,
                    "payment_method": CARD,
                    "confirm": True,
                }
            )
        assert over.value.error is not None
        assert over.value.error.code == "spend_cap_exceeded"


async def test_a_long_list_is_streamed_unchanged(stage: Stage) -> None:
    """A hundred PaymentIntents come through byte for byte."""
    caller, direct = await stage.caller_with({"usd": 1}), stage.caller("sk_test_x", stage.sim.url)
    for number in range(100):
        await direct.create(500, key=f"k{number}", description="d" * 900)
    path = f"/v1/payment_intents?customer={CUSTOMER}&limit=100"
    through, straight = await caller.get(path), await direct.get(path)
    assert len(through.body["data"]) == 100
    assert through.body == straight.body
    assert through.headers["Content-Length"] == straight.headers["Content-Length"]


async def test_stripe_not_reached_means_that_nothing_was_sent(stage: Stage) -> None:
    """A refused connection is 503 `upstream_not_reached`, gives back what was held, and is no unknown."""
    settings = proxy_settings(stage.database, stage.sim.url)
    key = await stage.issue({"usd": 1_000})
    intent = (await stage.caller(key).create(1_000, key="a")).body["id"]
    async with open_proxy(settings) as (url, _):
        await stage.sim.simulator.courier.idle()
        broken = stage.caller(key, url)
        stage.sim.set_faults()
        async with _closed_upstream(stage, key) as closed:
            said = await closed.confirm(intent, key="b")
            assert (said.status, said.code, said.headers["Stripe-Should-Retry"]) == (
                503, "upstream_not_reached", "true"
            )  # fmt: skip
        assert (await broken.confirm(intent, key="b")).status == 200
    assert (await stage.settled_standing())["settled_minor"] == 1_000


class _closed_upstream:  # noqa: N801 - reads as a function where it is used
    """A proxy whose Stripe went away after it had said whose key it is."""

    def __init__(self, stage: Stage, key: str) -> None:
        self._stage, self._key = stage, key
        self._proxy: Any = None
        self._runner: Any = None

    async def __aenter__(self) -> Any:
        async def whose(_request: web.Request) -> web.Response:
            return web.json_response({"id": "acct_sim"})

        app = web.Application()
        app.router.add_get("/v1/account", whose)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self._proxy = open_proxy(proxy_settings(self._stage.database, f"http://127.0.0.1:{port}"))
        url, _ = await self._proxy.__aenter__()
        await self._runner.cleanup()
        return self._stage.caller(self._key, url)

    async def __aexit__(self, *_: object) -> None:
        await self._proxy.__aexit__(None, None, None)


async def test_an_answer_that_never_comes_is_unknown(database: Database) -> None:
    """A request that was sent and not answered in time is 504 without a hint to retry, and holds."""
    async with open_stage(database, timeout_seconds=0.3) as stage:
        stage.sim.set_faults(
            {
                "name": "slow",
                "match": {"path": "/confirm$"},
                "place": "after",
                "effect": {"kind": "delay", "seconds": 2},
            }
        )
        caller = await stage.caller_with({"usd": 1_000})
        said = await caller.pay(1_000, name="a")
        assert (said.status, said.code) == (504, "upstream_no_answer")
        assert "Stripe-Should-Retry" not in said.headers
        assert said.headers["Request-Id"].startswith("req_proxy_")
        assert (await stage.settled_standing())["held_minor"] == 1_000


async def test_an_account_whose_requests_hang_starves_nobody(database: Database) -> None:
    """It gets half of the connections and then 429 for what was not sent; another account pays meanwhile."""
    keys = json.dumps({ACCOUNT: REAL_KEY, "acct_other": "sk_test_theOtherOne"})
    async with open_stage(database, connections=8, account_keys=keys, stripe_secret_key=None) as stage:
        stage.sim.seed(CUSTOMER, CARD)
        slow = {"match": {"method": "GET", "path": "/customers"}, "effect": {"kind": "delay", "seconds": 1}}
        stage.sim.set_faults({"name": "slow", "place": "before", **slow})
        stuck = await stage.caller_with({"usd": 1_000})
        other = await stage.caller_with({"usd": 1_000}, account="acct_other")
        async with asyncio.TaskGroup() as group:
            hanging = [group.create_task(stuck.get("/v1/customers")) for _ in range(12)]
            refused = 0
            for answer in asyncio.as_completed(hanging):
                said = await answer
                assert (said.status, said.code, said.headers["Stripe-Should-Retry"]) == (
                    429, "account_busy", "true",
                )  # fmt: skip
                if (refused := refused + 1) == 8:
                    break
            assert (await other.get("/v1/balance")).status == 200
            assert sum(task.done() for task in hanging) == refused
        assert sorted(task.result().status for task in hanging) == [200] * 4 + [429] * 8
        assert (await stuck.get("/v1/balance")).status == 200


async def test_a_request_past_its_time_is_not_sent(stage: Stage) -> None:
    """A not-after time that has passed is 503, and one that has not is not passed on to Stripe."""
    caller = await stage.caller_with({"usd": 1_000})
    fields = {"amount": 500, "currency": "usd", "customer": CUSTOMER}
    late = await caller.post(
        "/v1/payment_intents", fields, Idempotency_Key="a", Chargeonce_Not_After=str(time.time() - 1)
    )
    assert (late.status, late.code) == (503, "upstream_not_reached")
    timely = await caller.post(
        "/v1/payment_intents", fields, Idempotency_Key="a", Chargeonce_Not_After=str(time.time() + 60)
    )
    assert timely.status == 200
    assert [request.path for request in stage.sim.requests] == ["/v1/account", "/v1/payment_intents"]


async def test_an_unreachable_ledger_means_that_nothing_is_sent(stage: Stage) -> None:
    """Without a commit nothing leaves: 503, and Stripe has seen nothing."""
    caller = await stage.caller_with({"usd": 1_000})
    await stage.fetch("ALTER FUNCTION vault_admit(jsonb, jsonb) RENAME TO vault_away")
    said = await caller.create(500, key="a")
    assert (said.status, said.code) == (503, "upstream_not_reached")
    assert [request.path for request in stage.sim.requests] == ["/v1/account"]


@pytest.mark.parametrize(
    ("status", "code", "proof", "cause"),
    [
        (429, "spend_cap_exceeded", Proof.NOT_EXECUTED, Cause.CAP),
        (429, "lock_timeout", Proof.NOT_EXECUTED, Cause.RATE_LIMITED),
        (503, "upstream_not_reached", Proof.NOT_EXECUTED, Cause.UNREACHABLE),
        (504, "upstream_no_answer", Proof.UNKNOWN, Cause.SERVER_ERROR),
        (401, "vault_key_revoked", Proof.NOT_EXECUTED, Cause.CREDENTIALS),
        (403, "endpoint_not_allowed", Proof.NOT_EXECUTED, Cause.CREDENTIALS),
    ],
)
def test_the_verdict_table_knows_the_proxys_answers(
    status: int, code: str, proof: Proof, cause: Cause
) -> None:
    """Each own answer means to the send path what the proxy means by it."""
    answer = Answer(transport=Transport.ANSWERED, http_status=status, code=code)
    verdict = judge(Operation.CONFIRM, answer, first_send=False)
    assert (verdict.proof, verdict.cause) == (proof, cause)


async def test_no_secret_reaches_a_log_an_answer_or_the_ledger(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the real key nor a whole vault key is logged, sent back or stored, whatever went wrong."""
    caplog.set_level(logging.DEBUG)
    key = await stage.issue({"usd": 1_000})
    caller = stage.caller(key)
    stage.sim.change(accept_keys=["sk_test_another"])
    refused = await caller.create(500, key="a")
    stage.sim.change(accept_keys=None)
    await caller.pay(600, name="b")
    await caller.pay(600, name="c")
    await stage.settled_standing()
    rows = await stage.fetch(
        "SELECT c::text, a::text FROM vault_calls c LEFT JOIN vault_answers a USING (call_id)"
    )
    keys = await stage.fetch("SELECT k::text FROM vault_keys k")
    everything = caplog.text + str(refused) + str(rows) + str(keys) + repr(caller.url)
    assert refused.status == 401
    assert REAL_KEY not in everything
    assert key not in everything
    await asyncio.sleep(0)


async def test_a_process_that_froze_does_not_send_when_it_thaws(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between commit and request too much time went by: nothing leaves, and the hold is given back."""
    caller = await stage.caller_with({"usd": 1_000})
    made = await caller.create(1_000, key="a")
    monkeypatch.setattr("worker.proxy.app.LEAVE_WITHIN_SECONDS", -1.0)
    said = await caller.confirm(made.body["id"], key="b")
    assert (said.status, said.code) == (503, "upstream_not_reached")
    assert (await stage.settled_standing())["held_minor"] == 0
    assert [request.path for request in stage.sim.requests if request.path.endswith("/confirm")] == []
