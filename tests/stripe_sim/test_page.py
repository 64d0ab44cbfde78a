"""The page that a person reads while a drill runs."""

import aiohttp
import stripe

from deploy.stripe_sim.testing import RunningSim
from tests.stripe_sim.calls import create


async def read_page(sim: RunningSim, query: str = "") -> str:
    """Return the HTML of the page."""
    async with aiohttp.ClientSession() as session, session.get(f"{sim.url}/_sim/{query}") as answer:
        assert answer.status == 200
        assert answer.content_type == "text/html"
        return await answer.text()


async def test_the_page_shows_the_drill(sim: RunningSim, client: stripe.StripeClient) -> None:
    """Book, double charges, faults, requests, webhooks and clock are on one page."""
    sim.set_faults({"name": "the fault", "effect": {"kind": "drop"}, "match": {"only": [99]}})
    body = {"url": "http://127.0.0.1:9/hook", "enabled_events": ["charge.succeeded"]}
    await client.v1.webhook_endpoints.create_async(body)  # type: ignore[arg-type]  # names are literals there
    for _ in range(2):
        paid = await create(client, confirm=True, metadata={"identity": "order-7"})
    await client.v1.refunds.create_async({"payment_intent": paid.id})
    await sim.deliver()
    page = await read_page(sim, "?identity=identity")
    for text in ("1 double charges", "order-7", "the fault", "/v1/payment_intents", "charge.succeeded"):
        assert text in page
    assert "standing still" in page
    assert "refunds" in page


async def test_what_clients_send_is_escaped(sim: RunningSim, client: stripe.StripeClient) -> None:
    """A key or an identity cannot put markup on the page."""
    script = "<script>alert(1)</script>"
    for key in (script, "other"):
        await create(client, key, confirm=True, metadata={"identity": script})
    page = await read_page(sim, f"?identity={script}") + await read_page(sim, "?identity=identity")
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 3
