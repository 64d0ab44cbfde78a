"""Somebody else's requests to Stripe, such as those behind its Dashboard."""

from typing import Any

import aiohttp

from tests.activities.scene import API_KEY


async def post(stripe_url: str, path: str, *, key: str = API_KEY, **fields: object) -> dict[str, Any]:
    """Send a request that succeeds; return what it made."""
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(stripe_url + path, data=fields) as response,
    ):
        assert response.status == 200, await response.text()
        made: dict[str, Any] = await response.json()
        return made
