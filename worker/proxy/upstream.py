"""The connections to Stripe: one request out per request in, never a second one.

Redirects are not followed and bodies are not unpacked: what came is passed on.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from worker.proxy.evidence import BODY_BYTES_MAX, Answered

DEFAULT_BASE: Final = "https://api.stripe.com"
CONNECTIONS_MAX: Final = 512
KEEPALIVE_SECONDS: Final = (
    4.0  # below the 5 s of common servers: whoever closes last risks an unknown outcome
)
CONNECT_SHARE: Final = 1 / 4  # of the timeout: a connect that hangs must end as "not sent"

# Raised before the first byte of a request could leave.
_NEVER_SENT = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
    aiohttp.NonHttpUrlClientError,
)
_SKIPPED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_HOP_BY_HOP = (
    "Connection",
    "Keep-Alive",
    "Proxy-Authenticate",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
)


class NotReached(Exception):
    """No byte of the request left; the message says why, without the address."""


class NoAnswer(Exception):
    """The request may have been executed, and no complete answer came."""


class Upstream:
    """A pool of connections to Stripe."""

    def __init__(self, session: aiohttp.ClientSession, base: str, timeout_seconds: float) -> None:
        self._session = session
        self._base = base.rstrip("/")
        self._timeout_seconds = timeout_seconds

    async def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answered:
        """Send one request and return its complete answer.

        Raises:
            NotReached: Nothing was sent.
            NoAnswer: It may have been executed.
        """
        async with self.open(method, target, headers, body) as response:
            return await read_whole(response)

    @asynccontextmanager
    async def open(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request and yield its answer once the head of it has come. Raises as `send` does."""
        try:
            async with (
                asyncio.timeout(self._timeout_seconds),
                self._session.request(
                    method,
                    URL(self._base + target, encoded=True),
                    headers=headers,
                    data=body or None,
                    allow_redirects=False,
                ) as response,
            ):
                yield response
        except _NEVER_SENT as error:
            raise NotReached(type(error).__name__) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NoAnswer(type(error).__name__) from None


async def read_whole(response: aiohttp.ClientResponse) -> Answered:
    """Return an answer with its whole body. Raises NoAnswer where it goes on beyond the limit."""
    chunks: list[bytes] = []
    length = 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        length += len(chunk)
        if length > BODY_BYTES_MAX:
            raise NoAnswer("the body is too long")
    return Answered(response.status, response.headers, b"".join(chunks))


def headers_to_pass_on(answered: Mapping[str, str]) -> CIMultiDict[str]:
    """Return the headers of an answer without those that speak about one connection only."""
    headers = CIMultiDict(answered)
    for name in headers.get("Connection", "").split(","):
        headers.popall(name.strip(), None)
    for name in (*_HOP_BY_HOP, "Content-Length"):
        headers.popall(name, None)
    return headers


@asynccontextmanager
async def open_upstream(base: str | None, *, timeout_seconds: float) -> AsyncIterator[Upstream]:
    """Yield connections to Stripe, or to `base`, closed in the end."""
    connector = aiohttp.TCPConnector(
        limit=CONNECTIONS_MAX, keepalive_timeout=KEEPALIVE_SECONDS, ssl=ssl.create_default_context()
    )
    timeout = aiohttp.ClientTimeout(total=None, connect=timeout_seconds * CONNECT_SHARE)
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=_SKIPPED,
        timeout=timeout,
    ) as session:
        yield Upstream(session, base or DEFAULT_BASE, timeout_seconds)
