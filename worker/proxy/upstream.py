"""The connections to Stripe: one request out per request in, never a second one.

No account can take them all: it gets one more only while it holds fewer than are free. One whose requests
hang ends with half of them, a second one with a quarter, and there is always something left for the next.

Redirects are not followed and bodies are not unpacked: what came is passed on.
"""

import asyncio
import functools
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from worker.proxy.evidence import BODY_BYTES_MAX, Answered
from workflows.domain.verdict import PROXY_HEADER

DEFAULT_BASE: Final = "https://api.stripe.com"
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


class NoPlace(NotReached):
    """The account has too many requests at once: no byte of this one left."""


class NoAnswer(Exception):
    """The request may have been executed, and no complete answer came."""


class Upstream:
    """A pool of connections to Stripe."""

    def __init__(
        self, session: aiohttp.ClientSession, base: str, timeout_seconds: float, connections: int
    ) -> None:
        self._session = session
        self._base = base.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._free = connections
        self._held: Counter[str] = Counter()

    async def send(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, account: str
    ) -> Answered:
        """Send one request on an account's behalf and return its complete answer.

        Raises:
            NotReached: Nothing was sent; as NoPlace where the account has too many requests at once.
            NoAnswer: It may have been executed.
        """
        async with self.open(method, target, headers, body, account=account) as response:
            return await read_whole(response)

    @contextmanager
    def _place(self, account: str) -> Iterator[None]:
        if self._held[account] >= self._free:
            raise NoPlace("too many requests of this account are on the way")
        self._held[account] += 1
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1
            self._held[account] -= 1

    @asynccontextmanager
    async def open(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, account: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request and yield its answer once the head of it has come. Raises as `send` does."""
        try:
            with self._place(account):
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
    if "Date" not in headers:
        headers[PROXY_HEADER] = "date"  # our server adds one of its own, which is not Stripe's clock
    return headers


@functools.cache
def _trust() -> ssl.SSLContext:
    """Return what TLS to Stripe trusts, read once: there are over a hundred authorities."""
    return ssl.create_default_context()


@asynccontextmanager
async def open_upstream(
    base: str | None, *, timeout_seconds: float, connections: int
) -> AsyncIterator[Upstream]:
    """Yield connections to Stripe, or to `base`, closed in the end."""
    connector = aiohttp.TCPConnector(limit=connections, keepalive_timeout=KEEPALIVE_SECONDS, ssl=_trust())
    timeout = aiohttp.ClientTimeout(total=None, connect=timeout_seconds * CONNECT_SHARE)
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=_SKIPPED,
        timeout=timeout,
    ) as session:
        yield Upstream(session, base or DEFAULT_BASE, timeout_seconds, connections)
