"""What the wire can do beyond any orderly answer: everything becomes an Answer, and nothing is sent twice."""

import asyncio
import json
import socket
import time
import warnings

import pytest

from activities.gateway import single_send
from activities.gateway.calls import STRIPE_VERSION, CallStyle
from tests.gateway.till import (
    ACCOUNT,
    CREATE,
    Till,
    create,
    create_key,
    gateway_at,
    nothing_was_sent,
    open_till,
    post_create,
)
from tests.gateway.wire import Respond, answering, http, raw_server
from workflows.domain.answer import Answer, Transport
from workflows.domain.verdict import Proof, judge

ANSWERED, NOT_SENT = Transport.ANSWERED, Transport.NOT_SENT
NO_ANSWER, UNREADABLE = Transport.NO_ANSWER, Transport.UNREADABLE

JSON = "Content-Type: application/json"
HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
INTENT = {
    "id": "pi_1",
    "object": "payment_intent",
    "status": "requires_confirmation",
    "amount": 1250,
    "currency": "eur",
    "created": 1_932_796_800,
    "metadata": {},
}
WHOLE = json.dumps(INTENT).encode()
PAID = json.dumps({**INTENT, "status": "succeeded"}).encode()


def both_styles(test: object) -> object:
    """Run a test in both call styles."""
    return pytest.mark.parametrize("call_style", ["raw", "typed"])(test)


async def ask(respond: Respond, call_style: CallStyle = "raw", *, timeout_seconds: float = 10.0) -> Answer:
    """Send one create to a server that responds like this; the request is on the wire once."""
    async with raw_server(respond) as wire:
        async with gateway_at(wire.url, call_style, timeout_seconds=timeout_seconds) as gateway:
            answer = await post_create(gateway)
        assert len(wire.requests) == 1
    return answer


BODIES = {
    "HTML 502": (http("502 Bad Gateway", HTML, "Content-Type: text/html"), UNREADABLE, 502),
    "HTML 200": (http("200 OK", HTML, "Content-Type: text/html"), UNREADABLE, 200),
    "empty 200": (http("200 OK", b"", JSON), UNREADABLE, 200),
    "half of the JSON": (http("200 OK", WHOLE[:-20], JSON), UNREADABLE, 200),
    "not UTF-8": (http("200 OK", b'{"id": "\xff\xfe"}', JSON), UNREADABLE, 200),
    "a list": (http("200 OK", b"[1, 2]", JSON), UNREADABLE, 200),
    "a number": (http("200 OK", b"17", JSON), UNREADABLE, 200),
    "JSON of a load balancer": (http("400 Bad Request", b'{"message": "no"}', JSON), UNREADABLE, 400),
    "an error that is a text": (http("400 Bad Request", b'{"error": "no"}', JSON), UNREADABLE, 400),
    "an error that is null": (http("500 Oops", b'{"error": null}', JSON), UNREADABLE, 500),
    "deep JSON": (http("200 OK", b'{"a":' * 100_000, JSON), UNREADABLE, 200),
    "a body cut short": (http("200 OK", WHOLE, JSON, length=len(WHOLE) + 10), UNREADABLE, 200),
    "a body that lies about gzip": (http("200 OK", WHOLE, JSON, "Content-Encoding: gzip"), UNREADABLE, 200),
    "broken chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        NO_ANSWER,
        None,
    ),
    "nothing at all": (b"", NO_ANSWER, None),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n", NO_ANSWER, None),
    "half of the headers": (b"HTTP/1.1 200 OK\r\nContent-Le", NO_ANSWER, None),
    "an endless header": (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", NO_ANSWER, None),
}


@both_styles
@pytest.mark.parametrize(("answer_bytes", "transport", "status"), BODIES.values(), ids=BODIES.keys())
async def test_garbage_is_an_unknown_outcome(
    answer_bytes: bytes, transport: Transport, status: int | None, call_style: CallStyle
) -> None:
    """Whatever comes back instead of Stripe's JSON, the outcome is unknown and nothing is raised."""
    answer = await ask(answering(answer_bytes), call_style)
    assert (answer.transport, answer.http_status) == (transport, status), answer
    assert judge(CREATE, answer, first_send=True).proof is Proof.UNKNOWN
    assert answer.message
    assert len(answer.message) <= 500


async def test_an_unreadable_answer_keeps_its_headers() -> None:
    """A load balancer's 503 may say when to come back, and its request id helps support."""
    answer = await ask(
        answering(http("503 Busy", HTML, "Retry-After: 7", "Request-Id: req_1", "Content-Type: text/html"))
    )
    assert answer.retry_after_seconds == 7.0
    assert answer.request_id == "req_1"
    assert answer.stripe_epoch_seconds is not None


@pytest.mark.parametrize(
    "status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"]
)
async def test_a_redirect_is_not_followed(status: str) -> None:
    """A POST is on the wire once, even if the answer asks to send it somewhere else."""
    async with raw_server(answering(http("200 OK", WHOLE, JSON))) as elsewhere:
        answer = await ask(answering(http(status, b"", f"Location: {elsewhere.url}/v1/payment_intents")))
        assert elsewhere.requests == []
    assert judge(CREATE, answer, first_send=True).proof is Proof.UNKNOWN


@both_styles
async def test_a_dripping_body_ends_with_the_total_timeout(call_style: CallStyle) -> None:
    """The timeout counts the whole call: a body that trickles can't stretch it."""

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(http("200 OK", b"", JSON, length=1_000))
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    began = time.monotonic()
    answer = await ask(drip, call_style, timeout_seconds=0.3)
    assert time.monotonic() - began < 2.0
    assert answer.transport is NO_ANSWER
    assert answer.message == "no complete answer within 0.3 s"


async def test_a_silent_server_is_no_answer() -> None:
    """A server that takes the request and says nothing may have done what it asked."""

    async def nothing(_writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    assert (await ask(nothing, timeout_seconds=0.2)).transport is NO_ANSWER


async def test_a_body_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer above the limit is not read to its end: memory is not Stripe's to fill."""
    monkeypatch.setattr(single_send, "BODY_BYTES_MAX", 100)
    assert (await ask(answering(http("200 OK", b" " * 200 + WHOLE, JSON)))).transport is UNREADABLE


async def test_a_connect_that_hangs_was_not_sent() -> None:
    """No connection, no byte: a server too busy to accept ends as `not sent`, before the total timeout."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    waiting = [socket.socket() for _ in range(4)]
    try:
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        async with gateway_at(
            f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_seconds=0.6
        ) as gateway:
            answer = await post_create(gateway)
    finally:
        for client in (*waiting, listener):
            client.close()
    assert nothing_was_sent(answer), answer
    assert "ConnectionTimeoutError" in (answer.message or "")


async def test_a_name_that_does_not_resolve_was_not_sent() -> None:
    """DNS failed, so nothing left."""
    async with gateway_at("http://stripe.invalid") as gateway:
        assert nothing_was_sent(await post_create(gateway))


async def test_a_failed_tls_handshake_was_not_sent() -> None:
    """A server that speaks no TLS gets no request."""
    async with raw_server(answering(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as wire:
        async with gateway_at(wire.url.replace("http:", "https:"), timeout_seconds=3) as gateway:
            assert nothing_was_sent(await post_create(gateway))
        assert wire.requests == []


async def test_a_url_that_is_none_was_not_sent() -> None:
    """A misconfigured address sends nothing and says so."""
    for url in ("ftp://127.0.0.1", "http://", "nonsense"):
        async with gateway_at(url) as gateway:
            assert nothing_was_sent(await post_create(gateway))


async def test_a_closed_keep_alive_connection_is_no_answer() -> None:
    """The server closed the connection that was to be used again: it may have read the request first."""
    answers = iter([http("200 OK", WHOLE, JSON)])

    async def once(writer: asyncio.StreamWriter) -> None:
        answer = next(answers, None)
        if answer is None:
            writer.close()
            return
        await answering(answer)(writer)

    async with raw_server(once, keep_open=True) as wire, gateway_at(wire.url) as gateway:
        assert (await post_create(gateway)).transport is ANSWERED
        answer = await post_create(gateway)
        assert len(wire.requests) == 2
    assert answer.transport is NO_ANSWER


@both_styles
async def test_a_notice_from_stripe_does_not_raise_after_the_charge(call_style: CallStyle) -> None:
    """The SDK makes a warning of `Stripe-Notice`; with warnings as errors, the answer still arrives."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = await ask(answering(http("200 OK", PAID, JSON, "Stripe-Notice: upgrade")), call_style)
    assert answer.payment_intent is not None
    assert answer.payment_intent.status == "succeeded"


async def test_cancellation_goes_through() -> None:
    """A cancelled call raises CancelledError and is no Answer."""
    async with open_till() as till:
        till.seed()
        till.fault(kind="delay", seconds=5)
        call = asyncio.create_task(till.create())
        await till.wait_for_requests(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_waiting_for_a_connection_never_counts_as_unknown() -> None:
    """With one connection and slow answers, calls queue for longer than the timeout and all are answered."""
    async with open_till(timeout_seconds=0.5, connections=1) as till:
        till.seed()
        till.fault(kind="delay", seconds=0.15)
        answers = await asyncio.gather(*(till.create(version=version) for version in range(1, 9)))
    assert {answer.transport for answer in answers} == {ANSWERED}


async def test_a_call_past_its_time_does_not_leave() -> None:
    """A process that was frozen does not send when it thaws (I6)."""
    async with open_till() as till:
        till.seed()
        assert nothing_was_sent(await create_by(till, time.clock_gettime(time.CLOCK_BOOTTIME) - 0.001))
        assert till.sim.requests == []
        assert (await create_by(till, time.clock_gettime(time.CLOCK_BOOTTIME) + 60)).transport is ANSWERED


async def test_time_spent_queueing_counts_against_the_time_to_leave() -> None:
    """The time is looked at when a connection is free, not when the call began."""
    async with open_till(connections=1) as till:
        till.seed()
        till.fault(kind="delay", seconds=0.4)
        first = asyncio.create_task(till.create(version=2))
        await till.wait_for_requests(1)
        assert nothing_was_sent(await create_by(till, time.clock_gettime(time.CLOCK_BOOTTIME) + 0.1))
        assert (await first).transport is ANSWERED
        assert len(till.sim.requests) == 1


async def test_a_closed_gateway_sends_nothing() -> None:
    """A send that comes after the close, as in a shutdown, answers `not sent`."""
    async with open_till() as till:
        till.seed()
        await till.gateway.close()
        assert nothing_was_sent(await till.create())
        assert till.sim.requests == []


async def test_what_is_on_the_wire() -> None:
    """Version, key and account are explicit; telemetry is off; parameters go as they are."""
    respond = answering(http("200 OK", WHOLE, JSON))
    async with raw_server(respond, keep_open=True) as wire, gateway_at(wire.url) as gateway:
        await post_create(gateway)
        await post_create(gateway)
    head, _, body = wire.requests[1].partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    assert head.startswith(b"POST /v1/payment_intents HTTP/1.1\r\n")
    assert headers["Stripe-Version"] == STRIPE_VERSION
    assert headers["Idempotency-Key"] == create_key()
    assert "Stripe-Account" not in headers
    assert "X-Stripe-Client-Telemetry" not in headers
    assert "telemetry_id" not in headers["X-Stripe-Client-User-Agent"]
    assert b"automatic_payment_methods[allow_redirects]=never" in body
    assert b"automatic_payment_methods[enabled]=true" in body
    assert wire.requests[0] == wire.requests[1]


async def create_by(till: Till, leave_by: float) -> Answer:
    """Send a create that must have left by then."""
    request = create()
    return await till.gateway.post(
        CREATE,
        account=ACCOUNT,
        path=request.path,
        parameters=request.parameters,
        key=create_key(),
        leave_by_boottime_seconds=leave_by,
    )
