"""The API key and card data stay inside."""

import json
import logging
import pickle

import pytest
import stripe

from activities.gateway.calls import CallStyle
from activities.gateway.requests import StripeAccount
from tests.gateway.till import ACCOUNT, API_KEY, GOOD_CARD, gateway_at, open_till, post_create
from tests.gateway.wire import answering, http, raw_server
from workflows.domain.errors import RefusedToStart

HOSTILE = f"Invalid API Key: {API_KEY} sk_live_{'A' * 24}\x00\x1b[31m\u202e\ud800\nfoo" + "x" * 10_000


def holds_the_key(value: object) -> bool:
    """Whether the key stands in what a log or a store would keep of the value."""
    return API_KEY in repr(value) or API_KEY in str(value) or API_KEY.encode() in pickle.dumps(value)


@pytest.mark.parametrize("call_style", ["raw", "typed"])
async def test_nothing_that_comes_out_holds_the_key(call_style: CallStyle) -> None:
    """Answers, lookups and findings can be pickled, printed and stored."""
    async with open_till(call_style) as till:
        intent = await till.prepare()
        results: list[object] = [
            intent,
            await till.confirm(intent.id),
            await till.confirm(intent.id, version=2),
            await till.gateway.retrieve_payment_intent(ACCOUNT, intent.id, started_epoch_seconds=0.0),
            await till.gateway.list_payment_intents(
                ACCOUNT,
                customer=None,
                created_from_epoch_seconds=0,
                created_to_epoch_seconds=None,
                started_epoch_seconds=0.0,
            ),
            await till.gateway.payment_method_of(ACCOUNT, "cus_1"),
        ]
        till.sim.change(revoked=True)
        results.append(await till.create(version=2))
        assert API_KEY not in repr(till.gateway)
        assert API_KEY not in repr(till.gateway._calls)
        with pytest.raises(RefusedToStart) as refused:
            await till.gateway.retrieve_account()
        results.append(refused.value)
    assert not [result for result in results if holds_the_key(result)]
    assert not [result for result in results if "_secret_" in repr(result)]


async def test_a_gateway_can_t_be_pickled() -> None:
    """A gateway holds the key, so it can't be stored or sent."""
    async with gateway_at("http://127.0.0.1:9") as gateway:
        with pytest.raises(TypeError):
            pickle.dumps(gateway)


@pytest.mark.parametrize("call_style", ["raw", "typed"])
async def test_hostile_texts_are_made_harmless(call_style: CallStyle) -> None:
    """An echo of the key, control characters, half characters and length do not get through, in any field."""
    error = {"type": HOSTILE, "code": HOSTILE, "message": HOSTILE, "decline_code": HOSTILE}
    body = json.dumps({"error": error}).encode()
    answering_hostile = answering(http("402 Payment Required", body, f"Request-Id: req_1 {API_KEY}"))
    async with raw_server(answering_hostile) as wire, gateway_at(wire.url, call_style) as gateway:
        answer = await post_create(gateway)
    assert answer.http_status == 402
    texts = [answer.message, answer.code, answer.error_type, answer.decline_code, answer.request_id]
    for text in texts:
        assert text is not None
        assert text.isprintable()
        assert len(text) <= 500
        assert "sk_" not in text
        text.encode()
    assert not holds_the_key(answer)


async def test_an_unreadable_body_is_not_quoted() -> None:
    """A body that can't be read may hold anything, so none of it is kept."""
    async with (
        raw_server(answering(http("200 OK", b"client_secret: pi_1_secret_2"))) as wire,
        gateway_at(wire.url) as gateway,
    ):
        answer = await post_create(gateway)
    assert "secret" not in repr(answer)


@pytest.mark.parametrize("call_style", ["raw", "typed"])
async def test_the_sdk_prints_and_logs_nothing(
    call_style: CallStyle, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """At DEBUG the SDK logs whole bodies; here it can't, even if somebody turns its logger up."""
    async with open_till(call_style) as till:
        with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, logger="stripe"):
            intent = await till.prepare()
            await till.confirm(intent.id)
            await till.confirm(intent.id, version=2)
    assert [record for record in caplog.records if record.name.startswith("stripe")] == []
    assert GOOD_CARD not in caplog.text
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_the_sdk_s_switches_are_off() -> None:
    """No telemetry, no console log, whatever the environment says."""
    gateway_at("http://127.0.0.1:9")
    assert stripe.enable_telemetry is False
    assert stripe.log is None
    assert stripe._util.STRIPE_LOG is None
    assert stripe.api_key is None
    assert StripeAccount("acct_1", connected=True) == StripeAccount("acct_1", connected=True)
