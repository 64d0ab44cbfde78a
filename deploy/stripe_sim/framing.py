"""HTTP/1.1 as bytes: requests out of a stream, answers into one.

Plain enough to serve the clients of an API on a loopback address, and several times cheaper than a web
framework: a simulator that shares two cores with what it tests should not be what is measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

HEAD_BYTES_MAX: Final = 64 * 1024
BODY_BYTES_MAX: Final = 64 * 1024 * 1024
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_REASONS: Final = {int(status): status.phrase for status in HTTPStatus}


class BadRequest(Exception):
    """Bytes that are not HTTP, or too many of them; the connection cannot be used any longer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class RawRequest:
    """One request; names of headers are in lower case, and the first of two equal ones counts."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    keep_alive: bool


@dataclass(slots=True)
class _Head:
    method: str
    target: str
    headers: dict[str, str]
    keep_alive: bool
    body_bytes: int | None  # None: chunked


class RequestReader:
    """Takes bytes as they come and gives requests as they are complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: _Head | None = None
        self._expects_continue = False

    def feed(self, data: bytes) -> list[RawRequest]:
        """Return the requests that these bytes complete; raises BadRequest."""
        self._buffer += data
        requests = []
        while (request := self._take()) is not None:
            requests.append(request)
        return requests

    def take_expectation(self) -> bool:
        """Return, once, whether the client waits for `100 Continue` before it sends the body."""
        expects, self._expects_continue = self._expects_continue, False
        return expects

    def _take(self) -> RawRequest | None:
        buffer = self._buffer
        if self._head is None:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(buffer) > HEAD_BYTES_MAX:
                    raise BadRequest(431, "the head is too long")
                return None
            self._head = _parse_head(buffer[:end].decode("latin-1"))
            del buffer[: end + 4]
            self._expects_continue = "expect" in self._head.headers
        head = self._head
        body = self._take_chunked() if head.body_bytes is None else self._take_plain(head.body_bytes)
        if body is None:
            return None
        self._head, self._expects_continue = None, False
        path, _, query = head.target.partition("?")
        return RawRequest(
            head.method, unquote(path) if "%" in path else path, query, head.headers, body, head.keep_alive
        )

    def _take_plain(self, body_bytes: int) -> bytes | None:
        if len(self._buffer) < body_bytes:
            return None
        body = bytes(self._buffer[:body_bytes])
        del self._buffer[:body_bytes]
        return body

    def _take_chunked(self) -> bytes | None:
        buffer, body, at = self._buffer, bytearray(), 0
        while True:
            end = buffer.find(b"\r\n", at)
            if end < 0:
                return None
            size = _parse_size(buffer[at:end].partition(b";")[0], 16)
            at = end + 2 + size + 2
            if len(body) + size > BODY_BYTES_MAX:
                raise BadRequest(413, "the body is too long")
            if len(buffer) < at:
                return None
            if size == 0:
                del buffer[:at]
                return bytes(body)
            body += buffer[end + 2 : end + 2 + size]


def _parse_head(text: str) -> _Head:
    first, *lines = text.lstrip("\r\n").split("\r\n")
    try:
        method, target, version = first.split(" ")
    except ValueError:
        raise BadRequest(400, "the first line is no request") from None
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadRequest(400, "a header has no colon")
        headers.setdefault(name.lower(), value.strip())
    connection = headers.get("connection", "").lower()
    keep_alive = connection != "close" if version == "HTTP/1.1" else connection == "keep-alive"
    if "transfer-encoding" in headers:
        return _Head(method, target, headers, keep_alive, None)
    body_bytes = _parse_size(headers.get("content-length", "0").encode(), 10)
    if body_bytes > BODY_BYTES_MAX:
        raise BadRequest(413, "the body is too long")
    return _Head(method, target, headers, keep_alive, body_bytes)


def _parse_size(digits: bytes | bytearray, base: int) -> int:
    try:
        size = int(digits, base)
    except ValueError:
        raise BadRequest(400, "a length is no number") from None
    if size < 0:
        raise BadRequest(400, "a length is no number")
    return size


def format_answer(status: int, headers: Mapping[str, str], body: bytes, *, keep_alive: bool) -> bytes:
    """Return an answer as bytes, its length included."""
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines.append(f"Content-Length: {len(body)}\r\n\r\n" if keep_alive else f"Content-Length: {len(body)}")
    if not keep_alive:
        lines.append("Connection: close\r\n\r\n")
    return "\r\n".join(lines).encode("latin-1", "replace") + body
