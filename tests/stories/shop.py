"""The merchant's shop, where a customer is on session: it has the Stripe SDK and nothing of ours."""

import aiohttp
import stripe


async def pay_on_session(stripe_url: str, secret_key: str, payment_intent: str) -> None:
    """Have the customer pay a PaymentIntent with another card, as the shop's page would."""
    transport = stripe.AIOHTTPClient(timeout=10, connector=aiohttp.TCPConnector())
    client = stripe.StripeClient(secret_key, base_addresses={"api": stripe_url}, http_client=transport)
    try:
        intent = await client.v1.payment_intents.confirm_async(
            payment_intent, {"payment_method": "pm_card_visa", "return_url": "https://shop.example/return"}
        )
    finally:
        await transport.close_async()  # type: ignore[no-untyped-call]  # as the SDK ships it
    assert intent.status == "succeeded", intent.status
