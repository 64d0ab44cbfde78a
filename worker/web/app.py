"""One webhook: its bytes verified, one row kept, 200 once that is committed.

Everything else is later, from the table. What is refused leaves no row, and the answer says no more than
whoever configured the endpoint needs; a database that does not take it is 503, so that Stripe brings it
again.
"""

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from activities.ledger.inbox import InboxLedger, LedgerAway, Received
from worker.web.settings import WebSettings
from workflows.domain.errors import InvalidInput
from workflows.domain.webhook_event import WebhookEvent, read_event
from workflows.domain.webhook_signature import Refusal, find_signer

WEBHOOK_PATH = "/webhooks/stripe"
HEALTH_PATH = "/health"
READ_SECONDS = 10.0  # for a body: who sends more slowly holds a connection and nothing else
_REFUSALS_TOLD_SECONDS = 10.0

_LOG = logging.getLogger("chargeonce.web")


class Refused(Exception):
    """A webhook that is not believed: 400, and no row."""


@dataclass
class Receiver:
    """Takes webhooks. `read_clock` is real time, since that is what Stripe signs by."""

    inbox: InboxLedger
    settings: WebSettings
    read_clock: Callable[[], float] = time.time
    _secrets: tuple[bytes, ...] = ()
    _owners: tuple[str, ...] = ()
    _refusals: Counter[str] = field(default_factory=Counter)
    _told_at: float = 0.0

    def __post_init__(self) -> None:
        """Keep what each secret needs once per request at hand."""
        pairs = self.settings.webhook_secrets
        self._secrets = tuple(secret.get_secret_value().encode() for _, secret in pairs)
        self._owners = tuple(account for account, _ in pairs)

    async def take(self, request: web.Request) -> web.Response:
        """Answer one webhook."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                body = await request.read()
            received = self._believe(request.headers.get("Stripe-Signature"), body)
        except TimeoutError:
            return web.Response(status=408)
        except Refused as refusal:
            self._tell(str(refusal))
            return web.Response(status=400, text=str(refusal))
        try:
            async with asyncio.timeout(self.settings.commit_seconds):
                await self.inbox.keep(received)
        except (LedgerAway, TimeoutError) as failure:
            self._tell(f"not kept: {failure}" if isinstance(failure, LedgerAway) else "no commit in time")
            return web.Response(status=503, text="not kept: bring it again", headers={"Retry-After": "5"})
        return web.Response()

    def _believe(self, header: str | None, body: bytes) -> Received:
        signer = find_signer(
            header,
            body,
            self._secrets,
            now_epoch_seconds=self.read_clock(),
            tolerance_seconds=self.settings.tolerance_seconds,
        )
        if isinstance(signer, Refusal):
            raise Refused(signer.value)
        try:
            event = read_event(body)
        except InvalidInput as refusal:
            raise Refused(refusal.reason) from None
        return Received(event, self._account_of(event, self._owners[signer]))

    def _account_of(self, event: WebhookEvent, owner: str) -> str:
        """Return whose event it is: the endpoint's own account's, or one that is connected to it."""
        if event.live is not self.settings.live:
            raise Refused(f"a {'live' if event.live else 'sandbox'} event at a receiver of the other kind")
        if event.account is None or event.account == owner:
            return owner
        if event.account not in self.settings.connected:
            raise Refused("an event of an account that is not ours")
        return event.account

    def _tell(self, why: str) -> None:
        """Log refusals, counted: whoever knocks all day must not fill the log."""
        self._refusals[why] += 1
        now = time.monotonic()
        if now - self._told_at >= _REFUSALS_TOLD_SECONDS:
            _LOG.warning(json.dumps({"event": "webhooks_not_taken", "counts": dict(self._refusals)}))
            self._refusals.clear()
            self._told_at = now


def build_app(receiver: Receiver) -> web.Application:
    """Return the receiver as an application. Bodies above the limit are 413 before they are read whole."""
    app = web.Application(client_max_size=receiver.settings.body_bytes_max)
    app.router.add_post(WEBHOOK_PATH, receiver.take)
    app.router.add_get(HEALTH_PATH, _say_alive)
    return app


def answer_failure(status: int) -> web.Response:
    """Return what a request gets that never came to a handler, or that the receiver failed at itself."""
    return web.Response(status=status)


async def _say_alive(_request: web.Request) -> web.Response:
    return web.json_response({"alive": True})
