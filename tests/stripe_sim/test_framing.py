"""HTTP/1.1 as bytes, however they are cut into pieces."""

import pytest

from deploy.stripe_sim.framing import BadRequest, RequestReader, format_answer

POST = (
    b"POST /v1/customers?expand[]=a HTTP/1.1\r\nHost: x\r\nIdempotency-Key:  k1 \r\nidempotency-key: k2\r\n"
    b"Content-Length: 6\r\n\r\nname=a"
)
CHUNKED = b"POST /a%20b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nname\r\n2;x=y\r\n=a\r\n0\r\n\r\n"


@pytest.mark.parametrize("piece_bytes", [1, 7, 1_000])
def test_requests_in_pieces(piece_bytes: int) -> None:
    """Requests on one connection are found whatever the pieces; the first of two equal headers counts."""
    stream = POST + CHUNKED + POST
    reader = RequestReader()
    found = []
    for start in range(0, len(stream), piece_bytes):
        found += reader.feed(stream[start : start + piece_bytes])
    assert [request.body for request in found] == [b"name=a"] * 3
    first, second, third = found
    assert (first.method, first.path, first.query) == ("POST", "/v1/customers", "expand[]=a")
    assert first.headers["idempotency-key"] == "k1"
    assert second.path == "/a b"
    assert third == first
    assert first.keep_alive


@pytest.mark.parametrize(
    ("head", "keep_alive"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
    ],
)
def test_keep_alive(head: bytes, *, keep_alive: bool) -> None:
    """A connection is kept as its version and its header say."""
    (request,) = RequestReader().feed(head)
    assert request.keep_alive is keep_alive


def test_expectation_is_told_once() -> None:
    """A client that waits for `100 Continue` is told once."""
    reader = RequestReader()
    head, body = POST.replace(b"Host: x", b"Expect: 100-continue").split(b"\r\n\r\n")
    assert reader.feed(head + b"\r\n\r\n") == []
    assert reader.take_expectation()
    assert not reader.take_expectation()
    assert len(reader.feed(body)) == 1


@pytest.mark.parametrize(
    ("stream", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 70_000, 431),
    ],
)
def test_bad_bytes(stream: bytes, status: int) -> None:
    """What is no request, or too much of one, is refused with a reason."""
    with pytest.raises(BadRequest) as caught:
        RequestReader().feed(stream)
    assert caught.value.status == status


def test_an_answer_as_bytes() -> None:
    """An answer has its length, and says so when it is the last on its connection."""
    assert format_answer(402, {"A": "b"}, b"{}", keep_alive=True) == (
        b"HTTP/1.1 402 Payment Required\r\nA: b\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert b"\r\nConnection: close\r\n\r\n" in format_answer(200, {}, b"", keep_alive=False)
