"""What the proxy refuses to read in more than one way: nothing of it is ever sent."""

import asyncio
from urllib.parse import urlsplit

import pytest

from tests.proxy.stage import Stage

CREATE = "amount=1000&currency=usd&customer=cus_1&payment_method=pm_card_visa_1"
FORMS = [
    "amount=1&amount=2",
    "amount[]=1",
    "amount[0]=1",
    "Amount=1",
    "%2561mount=1",
    "amount%00=1",
    "amount=%31%20",
    "amount=+1",
    "amount=01",
    "amount=1e3",
    "amount=-1",
    "amount=",
    "confirm=True",
    "confirm=1",
    "confirm=false;confirm=true",
    "confirm=false&confirm[]=true",
    "CONFIRM=true",
    " confirm=true",
    "confirm",
    "=1",
    "a=1&&b=2",
    "metadata[a]=1&metadata[a]=2",
    "currency=us",
    "currency[a]=usd",
    "confirm=%ZZ",
    "confirm=true\r\n",
    "description=\u00e4",
    "description=%ff",
    "confirm=true",  # without its amount
    '{"amount": 1}',
]
TARGETS = [
    "/v1/payment_intents?confirm=true",
    "/v1/payment_intents?",
    "/v1//payment_intents",
    "/v1/payment_intents/",
    "/v1/../v1/payment_intents",
    "/v1/./payment_intents",
    "/v1/%2e%2e/v1/payment_intents",
    "/v1/payment_intents/pi_1%2Fconfirm",
    "/v1/payment_intents/pi_1%252Fconfirm",
    "/v1/payment_intents\\pi_1",
    "http://127.0.0.1/v1/payment_intents",
    "//v1/payment_intents",
]
OUTSIDE = [
    ("POST", "/v1/charges"),
    ("POST", "/v1/charges/ch_1/capture"),
    ("POST", "/v1/transfers"),
    ("POST", "/v1/payouts"),
    ("POST", "/v1/invoices/in_1/pay"),
    ("POST", "/v1/checkout/sessions"),
    ("POST", "/v1/payment_intents/pi_1/apply_customer_balance"),
    ("POST", "/v1/payment_intents/pi_1/verify_microdeposits"),
    ("POST", "/v1/payment_intents/pi-1/confirm"),
    ("DELETE", "/v1/customers/cus_1"),
    ("PUT", "/v1/payment_intents"),
    ("POST", "/v2/core/accounts"),
    ("GET", "/v2/core/events"),
    ("GET", "/_sim/book"),
    ("POST", "/V1/payment_intents"),
]


async def _raw(stage: Stage, text: str) -> tuple[int, str]:
    """Write bytes as they are, and return the status and what came with it."""
    address = urlsplit(stage.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(text.encode("latin-1"))
    await writer.drain()
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    length = next(
        int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    )
    body = await asyncio.wait_for(reader.readexactly(length), 10)
    writer.close()
    return int(head.split()[1]), body.decode()


def _request(
    key: str, target: str, body: str, *headers: str, method: str = "POST", length: int | None = None
) -> str:
    lines = [
        f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {key}",
        f"Content-Length: {len(body.encode('latin-1')) if length is None else length}",
        "Content-Type: application/x-www-form-urlencoded", "Idempotency-Key: k", *headers,
    ]  # fmt: skip
    return "\r\n".join(lines) + "\r\n\r\n" + body


async def test_a_form_that_can_be_read_in_two_ways_is_refused(stage: Stage) -> None:
    """Doubled, nested, oddly spelled or oddly encoded parameters end in 400, and nothing leaves."""
    key = await stage.issue({"usd": 10_000})
    for form in FORMS:
        status, body = await _raw(stage, _request(key, "/v1/payment_intents", form))
        assert (status, "ambiguous_request" in body) == (400, True), (form, body)
    assert [request.path for request in stage.sim.requests[1:]] == []
    rows = await stage.fetch("SELECT DISTINCT decision FROM vault_calls")
    assert [row["decision"] for row in rows] == ["ambiguous_request"]


async def test_a_path_that_can_be_read_in_two_ways_is_refused(stage: Stage) -> None:
    """Dots, doubled or escaped slashes, parameters in a POST's URL: 400, and nothing leaves."""
    key = await stage.issue({"usd": 10_000})
    for target in TARGETS:
        status, body = await _raw(stage, _request(key, target, CREATE))
        assert (status, "ambiguous_request" in body) == (400, True), (target, body)
    assert [request.path for request in stage.sim.requests[1:]] == []


async def test_a_request_framed_in_two_ways_is_refused(stage: Stage) -> None:
    """Two lengths, a length that lies, doubled headers, another content type, compressed: nothing leaves."""
    key = await stage.issue({"usd": 10_000})
    path = "/v1/payment_intents"
    chunked = f"{len(CREATE):x}\r\n{CREATE}\r\n0\r\n\r\n"
    framings = [
        _request(key, path, chunked, "Transfer-Encoding: chunked"),
        _request(key, path, CREATE, "Content-Length: 3"),
        _request(key, path, CREATE, length=-1),
        _request(key, path, CREATE, "Idempotency-Key: other"),
        _request(key, path, CREATE, "Stripe-Account: acct_sim", "Stripe-Account: acct_other"),
        _request(key, path, CREATE, f"Authorization: Bearer {key}"),
        _request(key, path, CREATE, "Content-Encoding: gzip"),
        _request(key, path, CREATE, "Content-Type: application/json"),
        _request(key, path, CREATE, "Stripe-Context: acct_other"),
        _request(key, path, CREATE, "Chargeonce-Not-After: tomorrow"),
        _request(key, "/v1/payment_intents/pi_1", CREATE, method="GET"),
    ]
    for text in framings:
        status, body = await _raw(stage, text)
        assert status in {400, 401}, (text, body)
    assert [request.path for request in stage.sim.requests[1:]] == []


async def test_a_second_request_in_the_body_stays_a_body(stage: Stage) -> None:
    """What a length covers is one body: a request hidden in it reaches nobody."""
    key = await stage.issue({"usd": 10_000})
    hidden = "GET /v1/account HTTP/1.1\r\nHost: x\r\n\r\n"
    status, _ = await _raw(stage, _request(key, "/v1/payment_intents", hidden))
    assert status == 400
    assert [request.path for request in stage.sim.requests[1:]] == []


@pytest.mark.parametrize("chunks", [1, 7])
async def test_a_chunked_body_is_read_whole(stage: Stage, chunks: int) -> None:
    """Chunks are another framing of the same body, which goes out with a length."""
    key = await stage.issue({"usd": 10_000})
    step = -(-len(CREATE) // chunks)
    pieces = [CREATE[at : at + step] for at in range(0, len(CREATE), step)]
    body = "".join(f"{len(piece):x}\r\n{piece}\r\n" for piece in pieces) + "0\r\n\r\n"
    text = _request(key, "/v1/payment_intents", body, "Transfer-Encoding: chunked")
    text = "\r\n".join(line for line in text.split("\r\n") if not line.startswith("Content-Length"))
    status, answer = await _raw(stage, text)
    assert (status, '"requires_confirmation"' in answer) == (200, True)


async def test_what_the_catalog_does_not_have_is_refused_to_everybody(stage: Stage) -> None:
    """Other ways to move money, other methods, other versions of the API: 403, and nothing leaves."""
    caller = await stage.caller_with({"usd": 10_000})
    for method, path in OUTSIDE:
        said = await caller.send(method, path, None if method == "GET" else "amount=1", Idempotency_Key="k")
        assert (said.status, said.code) == (403, "endpoint_not_allowed"), (method, path)
    assert [request.path for request in stage.sim.requests[1:]] == []
