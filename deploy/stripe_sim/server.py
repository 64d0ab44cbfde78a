"""The HTTP surface: aiohttp's low-level server, no router, nothing logged per request."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from deploy.stripe_sim.admin import AdminError, answer_admin
from deploy.stripe_sim.simulator import Simulator
from deploy.stripe_sim.wire import answer_request, receive

BACKLOG = 1_024
STOP_SECONDS = 0.05
_LOOPBACK = frozenset({"127.0.0.1", "::1"})


class Door:
    """Hands each request to /v1 or /_sim."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one HTTP request."""
        path = request.path
        if path.startswith("/v1/"):
            return await self._answer_v1(request, path)
        if path.startswith("/_sim/"):
            return await self._answer_admin(request, path)
        return _to_json(404, {"error": {"message": f"Nothing at {path}.", "type": "invalid_request_error"}})

    async def _answer_v1(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        body = await request.read() if request.body_exists else b""
        if request.method != "POST":
            body = request.rel_url.raw_query_string.encode()
        incoming = receive(self._simulator, request.method, path, request.headers, body)
        outgoing = await answer_request(self._simulator, incoming)
        if outgoing.status is None:
            if request.transport is not None:
                request.transport.close()
            return web.Response()
        return web.Response(status=outgoing.status, body=outgoing.body, headers=outgoing.headers)

    async def _answer_admin(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        if request.remote not in _LOOPBACK:
            return _to_json(403, {"error": "the controls answer on this machine only"})
        # Read past aiohttp's limit of 1 MiB: seeds come in bulk.
        body = await request.content.read()
        try:
            shown = answer_admin(self._simulator, request.method, path, dict(request.query), body)
        except AdminError as error:
            return _to_json(error.status, {"error": str(error)})
        return _to_json(200, shown)


@asynccontextmanager
async def serve(simulator: Simulator, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Listen, yield the base URL, and stop at once on the way out, whatever is still in flight."""
    simulator.start()
    server = web.Server(Door(simulator).answer, access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=STOP_SECONDS)
    await runner.setup()
    site = web.TCPSite(runner, host, port, backlog=BACKLOG, reuse_address=True)
    try:
        await site.start()
        bound_port = runner.addresses[0][1]
        yield f"http://{f'[{host}]' if ':' in host else host}:{bound_port}"
    finally:
        await runner.cleanup()
        simulator.close()
        # Transports close on the next turn of the loop; until then they would warn.
        await asyncio.sleep(0)


def _to_json(status: int, document: object) -> web.Response:
    body = json.dumps(document, separators=(",", ":")).encode()
    return web.Response(status=status, body=body, content_type="application/json")
