"""The transport under the SDK: one request leaves per call, and what came back is kept whatever the SDK does.

The SDK's aiohttp client takes any object with a `request` method for its session. This one
- follows no redirect, since a 307 would make aiohttp send a POST a second time;
- reads the body inside the call, so that errors of the body end where all others end, and up to a limit;
- drops the `Stripe-Notice` header, which the SDK turns into a warning: under `-W error` that would raise
  after the charge;
- sends the path as it was escaped: aiohttp would take escapes back that it finds needless, and whoever stands
  in between would judge another text than the one that was checked;
- notes status and headers in the `Exchange` of the caller's task: the SDK loses them with unreadable bodies.
"""

import asyncio
import functools
import ssl
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

import aiohttp
from yarl import URL

from activities.gateway.classify import NO_HEADERS

BODY_BYTES_MAX = 16 * 1024 * 1024  # a full page of 100 PaymentIntents is below 1 MB
KEEPALIVE_SECONDS = 4.0  # below the 5 s of common servers: whoever closes last risks an unknown outcome
CONNECT_SHARE = 1 / 3  # of the total timeout: a connect that hangs must end as "not sent", not as "unknown"

# Raised before the first byte of a request could leave: name resolution, connect, TLS handshake, a bad URL.
NEVER_SENT = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
    aiohttp.NonHttpUrlClientError,
)


@dataclass(slots=True)
class Exchange:
    """What one call has seen on the wire so far."""

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)
    sent_headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)
    """What goes out besides the SDK's own headers."""


CURRENT_EXCHANGE: ContextVar[Exchange] = ContextVar("current_exchange")


class BodyTooLong(Exception):
    """An answer went on beyond the limit, so it was not read to its end."""


class ReadBody:
    """A body that has been read already, in the shape of aiohttp's stream."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def read(self) -> bytes:
        """Return the whole body."""
        return self._content


@dataclass(frozen=True, slots=True)
class Received:
    """A complete answer, in the shape that the SDK expects of aiohttp."""

    status: int
    headers: Mapping[str, str]
    content: ReadBody


class SingleSendSession:
    """An aiohttp session narrowed to one send per call; opened by its first call, in that call's loop."""

    def __init__(self, *, connections: int, timeout_seconds: float, ca_bundle_path: str) -> None:
        self._connections = connections
        self._ca_bundle_path = ca_bundle_path
        self._timeout = aiohttp.ClientTimeout(
            total=None, connect=timeout_seconds * CONNECT_SHARE, ceil_threshold=timeout_seconds
        )
        self._session: aiohttp.ClientSession | None = None
        self.closed = False

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        data: str | None,
        timeout: object = None,  # noqa: ARG002, ASYNC109 - the SDK's default of 80 s; ours rules
    ) -> Received:
        """Send one request and return its complete answer.

        Raises:
            Exception: What aiohttp raises; members of NEVER_SENT mean that nothing left.
        """
        exchange = CURRENT_EXCHANGE.get()
        async with self._open().request(
            method,
            URL(url.replace("[", "%5B").replace("]", "%5D"), encoded=True),
            headers={**headers, **exchange.sent_headers},
            data=None if data is None else data.encode(),  # aiohttp's way with text is twice as long
            timeout=self._timeout,
            allow_redirects=False,
        ) as response:
            kept = response.headers.copy()
            kept.popall("Stripe-Notice", None)
            exchange.status, exchange.headers = response.status, kept
            return Received(response.status, kept, ReadBody(await _read_limited(response.content)))

    async def close(self) -> None:
        """Close all connections."""
        self.closed = True
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)  # transports close in the loop's next round

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self._connections,
                keepalive_timeout=KEEPALIVE_SECONDS,
                ssl=_trust(self._ca_bundle_path),
            )
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        return self._session


@functools.cache
def _trust(ca_bundle_path: str) -> ssl.SSLContext:
    """Return what TLS to Stripe trusts: one for all gateways, since reading the authorities takes 30 ms."""
    return ssl.create_default_context(cafile=ca_bundle_path)


async def _read_limited(stream: aiohttp.StreamReader) -> bytes:
    chunks: list[bytes] = []
    length = 0
    async for chunk in stream.iter_any():
        chunks.append(chunk)
        length += len(chunk)
        if length > BODY_BYTES_MAX:
            raise BodyTooLong(f"more than {BODY_BYTES_MAX} bytes")
    return b"".join(chunks)
