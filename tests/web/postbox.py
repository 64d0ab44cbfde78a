"""Receivers that listen, endpoints that Stripe delivers to, and letters that somebody else writes."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from pydantic import SecretStr

from deploy.postgres import Database
from deploy.stripe_sim.objects import WebhookEndpoint
from tests.activities.scene import ACCOUNT, Scene
from worker.web.app import WEBHOOK_PATH
from worker.web.server import open_web
from worker.web.settings import WebSettings
from workflows.domain.webhook_signature import sign

SECRET = "whsec_first"


@dataclass
class Postbox:
    """One receiver at `url`."""

    url: str
    session: aiohttp.ClientSession

    async def post(
        self,
        body: bytes,
        *,
        secret: str = SECRET,
        age_seconds: float = 0.0,
        header: str | None = None,
        path: str = WEBHOOK_PATH,
    ) -> int:
        """Send a body, signed now unless a header is given, and return the status."""
        signed = sign(secret.encode(), body, at_epoch_seconds=int(time.time() - age_seconds))
        headers = {"Stripe-Signature": signed if header is None else header}
        async with self.session.post(self.url + path, data=body, headers=headers) as response:
            await response.read()
            return response.status


def settings_for(database: Database, *secrets: tuple[str, str], **changes: object) -> WebSettings:
    """Return a receiver's settings; `secrets` are pairs of account and secret."""
    pairs = secrets or ((ACCOUNT.id, SECRET),)
    fields: dict[str, object] = {
        "database_url": SecretStr(database.web_url),
        "webhook_secrets": tuple((account, SecretStr(secret)) for account, secret in pairs),
        "port": 0,
    }
    return WebSettings(**{**fields, **changes})  # type: ignore[arg-type]


@asynccontextmanager
async def open_postbox(settings: WebSettings) -> AsyncIterator[Postbox]:
    """Run a receiver in this event loop."""
    async with open_web(settings) as url, aiohttp.ClientSession() as session:
        yield Postbox(url, session)


def register(scene: Scene, box: Postbox, *, secret: str = SECRET) -> None:
    """Let Stripe deliver everything to a receiver, signed with its secret."""
    simulator = scene.sim.simulator
    shelf = simulator.account(ACCOUNT.id).endpoints
    seq = shelf.next_seq()
    shelf.add(
        WebhookEndpoint(
            id=f"we_{seq}",
            seq=seq,
            created=int(scene.sim.clock.now()),
            url=box.url + WEBHOOK_PATH,
            enabled_events=["*"],
            secrets=[(secret, None)],
            metadata={},
        )
    )
    simulator.courier.look_around()
