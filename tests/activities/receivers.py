"""Whoever is notified, over real sockets: a web server that answers as it is told to, and a mail server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

DEADLINE_SECONDS = 20.0


@dataclass(frozen=True)
class Delivery:
    """One request that arrived."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class WebReceiver:
    """Answers each request with the next status it was given, and with 200 when there are no more."""

    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    hangs: bool = False
    deliveries: list[Delivery] = field(default_factory=list)
    url: str = ""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def answer(self, request: web.Request) -> web.Response:
        """Take one request."""
        delivery = Delivery(request.path_qs, dict(request.headers), await request.read())
        async with self._changed:
            self.deliveries.append(delivery)
            self._changed.notify_all()
        if self.hangs:
            await asyncio.sleep(DEADLINE_SECONDS)
        status = self.statuses.pop(0) if self.statuses else 200
        return web.Response(status=status, headers=self.headers, text="<secret answer>")

    async def until(self, count: int) -> None:
        """Return once so many requests have arrived."""
        async with asyncio.timeout(DEADLINE_SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self.deliveries) >= count)


@asynccontextmanager
async def web_receiver(*statuses: int, **options: object) -> AsyncIterator[WebReceiver]:
    """Yield a receiver that listens."""
    receiver = WebReceiver(list(statuses), **options)  # type: ignore[arg-type]
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", receiver.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    receiver.url = f"http://{host}:{port}"
    try:
        yield receiver
    finally:
        await runner.cleanup()


@dataclass
class MailReceiver:
    """As much of SMTP as a client needs to hand mail in; it refuses the recipients that it was told to."""

    refuses: frozenset[str] = frozenset()
    data_answer: str = "250 taken"
    heard: list[str] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    mails: list[str] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk to one client until it has said goodbye or is gone."""
        with contextlib.suppress(ConnectionError):
            writer.write(b"220 mail.example ready\r\n")
            while line := (await reader.readline()).decode():
                self.heard.append(line.rstrip("\r\n"))
                answer = await self._answer(line.strip(), reader, writer)
                writer.write(f"{answer}\r\n".encode())
                await writer.drain()
                if answer.startswith("221"):
                    break
        writer.close()

    async def _answer(self, line: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        match line.split(" ", maxsplit=1)[0].upper():
            case "EHLO":
                return "250-mail.example\r\n250 AUTH PLAIN"
            case "AUTH":
                return "235 welcome"
            case "RCPT":
                recipient = line.partition("<")[2].partition(">")[0]
                if recipient in self.refuses:
                    return "550 nobody here"
                self.recipients.append(recipient)
                return "250 ok"
            case "DATA":
                writer.write(b"354 go on\r\n")
                body = (await reader.readuntil(b"\r\n.\r\n")).decode()
                if self.data_answer.startswith("250"):
                    self.mails.append(body)
                return self.data_answer
            case "QUIT":
                return "221 goodbye"
            case "STARTTLS":
                return "502 not here"
            case _:
                return "250 ok"


@asynccontextmanager
async def mail_receiver(**options: object) -> AsyncIterator[MailReceiver]:
    """Yield a mail server that listens."""
    receiver = MailReceiver(**options)  # type: ignore[arg-type]
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await server.wait_closed()
