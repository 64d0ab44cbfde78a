"""The HTTP surface: one protocol per connection, one request after the other on each."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Generator
from contextlib import asynccontextmanager
from typing import Final, cast
from urllib.parse import parse_qsl

from deploy.stripe_sim.admin import AdminError, answer_admin
from deploy.stripe_sim.delivery import deliver, end_connection
from deploy.stripe_sim.due import settle_due
from deploy.stripe_sim.encoding import encode_json
from deploy.stripe_sim.exchange import Pause
from deploy.stripe_sim.framing import CONTINUE, BadRequest, RawRequest, RequestReader, format_answer
from deploy.stripe_sim.incoming import Outgoing
from deploy.stripe_sim.page import render_page
from deploy.stripe_sim.simulator import Simulator
from deploy.stripe_sim.wire import answer_request, receive

BACKLOG: Final = 1_024
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})
_HTML: Final = {"Content-Type": "text/html; charset=utf-8"}
_JSON: Final = {"Content-Type": "application/json"}
Steps = Generator[Pause, None, Outgoing]


class Connection(asyncio.Protocol):
    """One client's connection. A request that was received is finished even if its client hangs up."""

    def __init__(
        self, simulator: Simulator, open_connections: set["Connection"], tasks: set[asyncio.Task[None]]
    ) -> None:
        self._simulator = simulator
        self._open_connections = open_connections
        self._tasks = tasks
        self._reader = RequestReader()
        self._waiting: deque[RawRequest] = deque()
        self._is_busy = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to listen to a client."""
        self._transport = cast("asyncio.Transport", transport)
        self._open_connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Forget a client that has gone."""
        self._open_connections.discard(self)

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Answer whatever requests these bytes complete."""
        try:
            requests = self._reader.feed(data)
        except BadRequest as error:
            self._write(_to_json(error.status, {"error": {"message": str(error)}}), keep_alive=False)
            return
        if self._reader.take_expectation() and self._transport is not None:
            self._transport.write(CONTINUE)
        self._waiting.extend(requests)
        if not self._is_busy:
            self._answer_waiting()

    def _answer_waiting(self) -> None:
        while self._waiting and not self._is_busy:
            request = self._waiting.popleft()
            if request.path.startswith("/v1/"):
                self._answer_v1(request)
            elif request.path.startswith("/_sim"):
                self._write(self._answer_admin(request), keep_alive=request.keep_alive)
            else:
                message = {"message": f"Nothing at {request.path}.", "type": "invalid_request_error"}
                self._write(_to_json(404, {"error": message}), keep_alive=request.keep_alive)

    def _answer_v1(self, request: RawRequest) -> None:
        form = request.body if request.method == "POST" else request.query.encode()
        incoming = receive(self._simulator, request.method, request.path, request.headers, form)
        steps = answer_request(self._simulator, incoming)
        try:
            pause = next(steps)
        except StopIteration as done:
            outgoing: Outgoing = done.value
            if outgoing.pacing is None:
                self._write(outgoing, keep_alive=request.keep_alive)
            else:
                self._go_on(self._deliver(outgoing, keep_alive=request.keep_alive))
        else:
            self._go_on(self._wait(steps, pause, keep_alive=request.keep_alive))

    def _go_on(self, work: Coroutine[None, None, None]) -> None:
        self._is_busy = True
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._is_busy = False
        if task.cancelled() or task.exception() is not None:
            self.close()
        else:
            self._answer_waiting()

    async def _wait(self, steps: Steps, pause: Pause, *, keep_alive: bool) -> None:
        try:
            while True:
                await pause()
                pause = next(steps)
        except StopIteration as done:
            await self._deliver(done.value, keep_alive=keep_alive)
        finally:
            steps.close()

    async def _deliver(self, outgoing: Outgoing, *, keep_alive: bool) -> None:
        transport, pacing = self._transport, outgoing.pacing
        if transport is None or transport.is_closing():
            return
        if pacing is None:
            self._write(outgoing, keep_alive=keep_alive)
        elif outgoing.status is None:
            end_connection(transport, pacing.cut or "closed")
        else:
            data = format_answer(outgoing.status, outgoing.headers, outgoing.body, keep_alive=keep_alive)
            await deliver(transport, data, len(outgoing.body), pacing)
            if not keep_alive:
                transport.close()

    def _write(self, outgoing: Outgoing, *, keep_alive: bool) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        status = outgoing.status or 500
        transport.write(format_answer(status, outgoing.headers, outgoing.body, keep_alive=keep_alive))
        if not keep_alive:
            transport.close()

    def _answer_admin(self, request: RawRequest) -> Outgoing:
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        if peer is None or peer[0] not in _LOOPBACK:
            return _to_json(403, {"error": "the controls answer on this machine only"})
        query = dict(parse_qsl(request.query, keep_blank_values=True))
        if request.method == "GET" and request.path.rstrip("/") == "/_sim":
            return Outgoing(200, render_page(self._simulator, query).encode(), _HTML)
        try:
            shown = answer_admin(self._simulator, request.method, request.path, query, request.body)
        except AdminError as error:
            return _to_json(error.status, {"error": str(error)})
        finally:
            self._simulator.log.commit()
        return _to_json(200, shown)


@asynccontextmanager
async def serve(simulator: Simulator, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Listen, yield the base URL, and stop at once on the way out, whatever is still in flight."""
    simulator.start()
    open_connections: set[Connection] = set()
    tasks: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(
            lambda: Connection(simulator, open_connections, tasks), host, port, backlog=BACKLOG
        )
        try:
            bound_port = server.sockets[0].getsockname()[1]
            async with simulator.courier.running(lambda: settle_due(simulator)):
                yield f"http://{f'[{host}]' if ':' in host else host}:{bound_port}"
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for connection in list(open_connections):
                connection.close()
    finally:
        simulator.close()
        # Transports close on the next turn of the loop; until then they would warn.
        await asyncio.sleep(0)


def _to_json(status: int, document: object) -> Outgoing:
    return Outgoing(status, encode_json(document).encode(), _JSON)
