"""One POST of a small JSON body, for the destinations that are addresses on the web."""

from collections.abc import Mapping

import aiohttp

from activities.notifiers.destination import BODY_BYTES_MAX, TRY_SECONDS_MAX, NotDelivered
from workflows.domain.errors import invariant


async def post_json(
    url: str, body: bytes, *, headers: Mapping[str, str], timeout_seconds: float = TRY_SECONDS_MAX
) -> str:
    """Post a body once and return how it was taken; neither the answer's body nor a redirect is followed.

    Raises:
        NotDelivered: Anything but a 2xx, a connection that broke, or `timeout_seconds` in all went by.
    """
    invariant(len(body) <= BODY_BYTES_MAX, "a notification is a small thing")
    try:
        async with (
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=timeout_seconds), cookie_jar=aiohttp.DummyCookieJar()
            ) as session,
            session.post(
                url,
                data=body,
                headers={"Content-Type": "application/json", "User-Agent": "chargeonce", **headers},
                allow_redirects=False,
            ) as response,
        ):
            status = response.status
    except TimeoutError:
        raise NotDelivered(f"no answer within {timeout_seconds:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # Their texts name the address, which may hold a secret: the kind of the error has to do.
        raise NotDelivered(f"the connection failed ({type(error).__name__})") from None
    if 300 <= status < 400:
        raise NotDelivered(f"HTTP {status}: redirects are not followed")
    if not 200 <= status < 300:
        raise NotDelivered(f"HTTP {status}")
    return f"HTTP {status}"
