"""One webhook on the wire."""

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from deploy.stripe_sim.settings import Settings

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADERS: Final = {
    "Accept": "*/*; q=0.5, application/xml",
    "Cache-Control": "no-cache",
    "Content-Type": "application/json; charset=utf-8",
    "User-Agent": "Stripe/1.0 (+https://stripe.com/docs/webhooks)",
}


class Sender:
    """Posts webhooks; only to this machine, unless the settings say otherwise."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, body: bytes, signature: str) -> tuple[int | None, str]:
        """Return the status and what became of it; only a 2xx is a delivery, a redirect is not followed."""
        settings = self._settings()
        if not settings.webhooks_anywhere and urlsplit(url).hostname not in _LOOPBACK:
            return None, "not sent: not on this machine (see webhooks_anywhere)"
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), trust_env=False, headers=_HEADERS
            )
        timeout = aiohttp.ClientTimeout(total=settings.webhook_timeout_seconds)
        try:
            async with self._session.post(
                url,
                data=body,
                headers={"Stripe-Signature": signature},
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                await answer.read()
                is_taken = 200 <= answer.status < 300
                return answer.status, "delivered" if is_taken else "refused"
        except TimeoutError:
            return None, "timed out"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return None, f"failed: {type(error).__name__}"

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None
