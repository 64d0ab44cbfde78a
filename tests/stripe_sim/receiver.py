"""A webhook endpoint as a merchant writes one: checks the signature with the SDK, keeps what came."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import stripe
from aiohttp import web


@dataclass
class Receiver:
    """What arrived at `url`; `answer` decides on the status, 200 unless changed."""

    url: str = ""
    secret: str = ""
    events: list[stripe.Event] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    answer: Callable[[stripe.Event], int] = lambda _event: 200

    @property
    def types(self) -> list[str]:
        """The types of the events, in order of arrival."""
        return [event.type for event in self.events]

    async def take(self, request: web.Request) -> web.Response:
        """Answer one webhook."""
        body = await request.read()
        self.headers.append(dict(request.headers))
        try:
            event = stripe.Webhook.construct_event(body, request.headers["Stripe-Signature"], self.secret)
        except stripe.SignatureVerificationError as error:
            self.refused.append(str(error))
            return web.Response(status=400)
        status = self.answer(event)
        if 200 <= status < 300:
            self.events.append(event)
        return web.Response(status=status)


@asynccontextmanager
async def open_receiver() -> AsyncIterator[Receiver]:
    """Listen on a free port of this machine."""
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/hook", receiver.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        yield receiver
    finally:
        await runner.cleanup()
