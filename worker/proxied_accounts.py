"""What the spend-cap proxy says of itself, to those who have no Stripe key to ask Stripe with."""

import aiohttp

from activities.vault_credentials import ProxiedAccounts
from workflows.domain.errors import RefusedToStart

ASK_SECONDS = 10.0
HEALTH_PATH = "/_proxy/health"


async def ask_proxy(url: str) -> ProxiedAccounts:
    """Return whose money a proxy moves. Raises RefusedToStart where it does not answer within 10 s."""
    timeout = aiohttp.ClientTimeout(total=ASK_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{url.rstrip('/')}{HEALTH_PATH}", allow_redirects=False) as response,
        ):
            health = await response.json()
            return ProxiedAccounts(
                own=health["account"], everybody=list(health["accounts"]), modes=dict(health["modes"])
            )
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError) as error:
        raise RefusedToStart(
            f"the spend-cap proxy does not answer at {url} ({type(error).__name__}): is it running?"
        ) from None
