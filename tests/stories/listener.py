"""Somebody's endpoint for notifications: down for the first tries, then up, and it checks the signature."""

import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Listener:
    """Answers 500 to the first `fails` deliveries of each notification, and keeps what it takes."""

    secret: str
    fails: int
    url: str = ""
    tries: dict[str, int] = field(default_factory=dict)
    taken: list[dict[str, Any]] = field(default_factory=list)

    async def receive(self, request: web.Request) -> web.Response:
        """Take or fail one delivery."""
        body = await request.read()
        self._check_signature(request.headers["Chargeonce-Signature"], body)
        payload = json.loads(body)
        tries = self.tries[payload["id"]] = self.tries.get(payload["id"], 0) + 1
        if tries <= self.fails:
            return web.Response(status=500)
        self.taken.append(payload)
        return web.Response(status=204)

    def _check_signature(self, header: str, body: bytes) -> None:
        parts = dict(part.split("=", 1) for part in header.split(","))
        signed = parts["t"].encode() + b"." + body
        expected = hmac.new(self.secret.encode(), signed, hashlib.sha256).hexdigest()
        assert hmac.compare_digest(parts["v1"], expected)


@asynccontextmanager
async def listening(*, fails: int) -> AsyncIterator[Listener]:
    """Yield a listener on a free port of this machine."""
    listener = Listener(secret="nsec_synthetic_0123456789", fails=fails)
    app = web.Application()
    app.router.add_post("/runs", listener.receive)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        listener.url = f"http://127.0.0.1:{runner.addresses[0][1]}/runs"
        yield listener
    finally:
        await runner.cleanup()
