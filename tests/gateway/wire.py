"""A server that speaks bytes: for what no orderly simulator answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Wire:
    """A listening server; `requests` are the raw requests it has read."""

    url: str = ""
    requests: list[bytes] = field(default_factory=list)


Respond = Callable[[asyncio.StreamWriter], Awaitable[None]]


def http(status: str, body: bytes, *headers: str, length: int | None = None) -> bytes:
    """Return a whole HTTP answer; `length` may lie about the body's."""
    lines = [
        f"HTTP/1.1 {status}",
        "Date: Tue, 01 Apr 2031 08:00:00 GMT",
        f"Content-Length: {len(body) if length is None else length}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def answering(*answers: bytes) -> Respond:
    """Answer the same bytes to every request; without any, close the connection."""

    async def respond(writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            writer.write(answer)
        await writer.drain()

    return respond


@asynccontextmanager
async def raw_server(respond: Respond, *, keep_open: bool = False) -> AsyncIterator[Wire]:
    """Run a server that reads each request and lets `respond` write; then the connection closes."""
    wire = Wire()
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            while True:
                wire.requests.append(await _read_request(reader))
                await respond(writer)
                if not keep_open:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        except asyncio.CancelledError:
            return
        finally:
            connections.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        wire.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield wire
    finally:
        server.close()
        for task in list(connections):
            task.cancel()
        await server.wait_closed()
        await asyncio.sleep(0)


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    return head + await reader.readexactly(length)
