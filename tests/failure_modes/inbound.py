"""Unsafe on purpose: webhook handlers as most tutorials show them.

Each verifies the signature, parses the event, does what it says and answers 200. The simulator signs and
delivers over a socket, in the order and as often as an at-least-once delivery may.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import stripe
from aiohttp import web

from tests.failure_modes.shop import Due, Shop

SUCCEEDED: Final = "payment_intent.succeeded"
FAILED: Final = "payment_intent.payment_failed"
Handler = Callable[[stripe.Event], None]


@asynccontextmanager
async def webhook_endpoint(shop: Shop, handle: Handler) -> AsyncIterator[None]:
    """Serve a handler at a port of its own and register it; on the way out, wait for what is to come."""
    secrets: list[str] = []

    async def receive(request: web.Request) -> web.Response:
        payload = await request.read()
        handle(stripe.Webhook.construct_event(payload, request.headers["Stripe-Signature"], secrets[0]))
        return web.Response()

    app = web.Application()
    app.router.add_post("/webhooks/stripe", receive)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/webhooks/stripe"
        endpoint = await asyncio.to_thread(
            shop.client().v1.webhook_endpoints.create, {"url": url, "enabled_events": [SUCCEEDED, FAILED]}
        )
        secrets.append(endpoint.secret or "")
        yield
        await shop.sim.deliver()
        assert {attempt.status for attempt in shop.sim.deliveries} == {200}
    finally:
        await runner.cleanup()


async def charge(shop: Shop, due: Due) -> stripe.PaymentIntent:
    """Charge an amount over the SDK, by the book."""
    options: stripe.RequestOptions = {"idempotency_key": f"charge-{due.invoice}"}
    return await asyncio.to_thread(shop.client().v1.payment_intents.create, due.params, options)


async def credit_per_delivery(shop: Shop) -> None:
    """One `payment_intent.succeeded`, delivered twice, credits the customer twice."""
    due = shop.owe()

    def handle(event: stripe.Event) -> None:
        if event.type == SUCCEEDED:
            shop.paid.append(event.data.object["metadata"]["invoice"])

    shop.sim.set_webhook_faults({"name": "twice", "effect": {"kind": "duplicate"}})
    async with webhook_endpoint(shop, handle):
        await charge(shop, due)
    assert len({attempt.event for attempt in shop.sim.deliveries}) == 1


async def last_arrival_wins(shop: Shop) -> None:
    """The first try's failure arrives after the second one's success, and the paid order is unpaid again."""
    due = shop.owe(card="pm_card_declineOnceThenSucceed")
    states: dict[str, str] = {}

    def handle(event: stripe.Event) -> None:
        states[event.data.object["metadata"]["invoice"]] = event.type

    late = {"name": "late", "match": {"type": FAILED}, "effect": {"kind": "reorder", "after": 1}}
    shop.sim.set_webhook_faults(late)
    client = shop.client()
    async with webhook_endpoint(shop, handle):
        try:
            await charge(shop, due)
        except stripe.CardError as declined:
            error: Any = declined.error
            again: Any = {"payment_method": due.card, "off_session": True}
            await asyncio.to_thread(client.v1.payment_intents.confirm, error.payment_intent.id, again)
    assert [attempt.type for attempt in shop.sim.deliveries] == [SUCCEEDED, FAILED]
    shop.paid += [invoice for invoice, state in states.items() if state == SUCCEEDED]


async def forget_the_payment_intent(shop: Shop) -> None:
    """The answer had the right shape and nobody kept its id: the webhook that names it finds no order."""
    due = shop.owe()
    invoices_by_payment_intent: dict[str, str] = {}

    def handle(event: stripe.Event) -> None:
        if event.type == SUCCEEDED:
            invoice = invoices_by_payment_intent.get(event.data.object["id"])
            if invoice is not None:
                shop.paid.append(invoice)

    async with webhook_endpoint(shop, handle):
        await charge(shop, due)
