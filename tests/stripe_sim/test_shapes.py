"""Every endpoint and every state, held against the SDK's annotations."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from deploy.stripe_sim.routes import ENDPOINTS
from deploy.stripe_sim.testing import RunningSim
from tests.stripe_sim.shape_check import check_answer
from tests.stripe_sim.tour import Tour

DAY_SECONDS = 86_400
STATES = {
    "balance_transaction": {"available", "pending"},
    "charge": {"failed", "pending", "succeeded"},
    "customer": {"there", "deleted"},
    "dispute": {
        *("needs_response", "under_review", "won", "lost"),
        *("warning_needs_response", "warning_under_review", "warning_closed"),
    },
    "event": {"there"},
    "payment_intent": {
        *("requires_payment_method", "requires_confirmation", "requires_action", "processing"),
        *("requires_capture", "canceled", "succeeded"),
    },
    "payment_method": {"there"},
    "refund": {"pending", "succeeded", "failed"},
    "webhook_endpoint": {"enabled", "disabled", "deleted"},
}
EVENT_TYPES = {
    *("customer.created", "customer.updated", "customer.deleted"),
    *("payment_method.attached", "payment_method.detached", "payment_method.updated"),
    *("payment_intent.created", "payment_intent.processing", "payment_intent.succeeded"),
    *("payment_intent.payment_failed", "payment_intent.requires_action", "payment_intent.canceled"),
    "payment_intent.amount_capturable_updated",
    *("charge.succeeded", "charge.failed", "charge.pending", "charge.captured", "charge.refunded"),
    *("charge.updated", "charge.expired", "charge.refund.updated"),
    *("refund.created", "refund.updated", "refund.failed"),
    *("charge.dispute.created", "charge.dispute.updated", "charge.dispute.closed"),
    *("charge.dispute.funds_withdrawn", "charge.dispute.funds_reinstated"),
}


@pytest.fixture
async def tour(sim: RunningSim) -> AsyncIterator[Tour]:
    """Raw requests to a simulator with a frozen clock."""
    async with aiohttp.ClientSession() as session:
        yield Tour(sim.url, session)


async def _pay(tour: Tour, method: str, *, expect: int = 200, **params: Any) -> dict[str, Any]:
    body = {"amount": 5_000, "currency": "usd", "payment_method": method, "confirm": True, **params}
    return await tour.ask("POST", "payment_intents", body, expect=expect)


async def _see_customers(tour: Tour) -> str:
    address = {"city": "Berlin", "country": "DE", "line1": "Weg 1", "postal_code": "10115"}
    body = {"email": "one@example.com", "address": address, "shipping": {"address": address, "name": "One"}}
    customer: str = (await tour.ask("POST", "customers", body))["id"]
    await tour.ask("POST", f"customers/{customer}", {"name": "One", "tax_exempt": "exempt"})
    await tour.ask("GET", f"customers/{customer}")
    await tour.ask("GET", "customers", {"email": "one@example.com"})
    method: str = (await tour.ask("POST", "payment_methods/pm_card_visa/attach", {"customer": customer}))[
        "id"
    ]
    await tour.ask("POST", f"payment_methods/{method}", {"card": {"exp_year": 2041}, "metadata": {"a": "b"}})
    default = {"invoice_settings": {"default_payment_method": method}}
    await tour.ask("POST", f"customers/{customer}", default)
    expand = {"expand": ["invoice_settings.default_payment_method"]}
    shown = await tour.ask("GET", f"customers/{customer}", expand)
    assert shown["invoice_settings"]["default_payment_method"]["id"] == method
    await tour.ask("GET", f"customers/{customer}/payment_methods")
    await tour.ask("GET", f"customers/{customer}/payment_methods/{method}")
    await tour.ask("GET", "payment_methods", {"customer": customer})
    await tour.ask("GET", f"payment_methods/{method}", {"expand": ["customer"]})
    await tour.ask("POST", f"payment_methods/{method}/detach")
    for kind, details in (
        ("card", {"token": "tok_visa"}),
        ("us_bank_account", {"account_number": "000123456789", "routing_number": "110000000"}),
        ("sepa_debit", {"iban": "DE89370400440532013000"}),
    ):
        billing = {"name": "One", "email": "one@example.com"}
        await tour.ask("POST", "payment_methods", {"type": kind, kind: details, "billing_details": billing})
    gone = (await tour.ask("POST", "customers", {"payment_method": "pm_card_visa"}))["id"]
    await tour.ask("DELETE", f"customers/{gone}")
    await tour.ask("GET", f"customers/{gone}")
    return customer


async def _see_intents(sim: RunningSim, tour: Tour) -> None:
    bare = await tour.ask(
        "POST", "payment_intents", {"amount": 5_000, "currency": "usd", "shipping": {"name": "x"}}
    )
    changes = {"amount": 6_000, "description": "x", "payment_method": "pm_card_visa", "metadata": {"a": "b"}}
    await tour.ask("POST", f"payment_intents/{bare['id']}", changes)
    await tour.ask("POST", f"payment_intents/{bare['id']}/confirm", {"off_session": True})
    spare = await tour.ask("POST", "payment_intents", {"amount": 5_000, "currency": "usd"})
    await tour.ask("POST", f"payment_intents/{spare['id']}/cancel", {"cancellation_reason": "duplicate"})
    await _pay(tour, "pm_card_authenticationRequired")
    await _pay(tour, "pm_card_visa_chargeDeclined", expect=402)
    await _pay(tour, "pm_card_authenticationRequired", expect=402, off_session=True)
    held = await _pay(tour, "pm_card_visa", capture_method="manual")
    await tour.ask("POST", f"payment_intents/{held['id']}/capture", {"amount_to_capture": 4_000})
    held = await _pay(tour, "pm_card_visa", capture_method="manual")
    await tour.ask("GET", f"charges/{held['latest_charge']}")
    await tour.ask("POST", f"charges/{held['latest_charge']}/capture")
    await tour.ask("POST", f"charges/{held['latest_charge']}", {"description": "x", "metadata": {"a": "b"}})
    released = await _pay(tour, "pm_card_visa", capture_method="manual")
    await tour.ask("POST", f"payment_intents/{released['id']}/cancel")
    await _pay(tour, "pm_card_visa", capture_method="manual")
    for method in ("pm_usBankAccount_success", "pm_usBankAccount_insufficientFunds", "pm_sepaDebit"):
        await _pay(tour, method, currency="eur" if method == "pm_sepaDebit" else "usd")
    await tour.ask("GET", "charges", {"limit": 100})
    sim.clock.advance(8 * DAY_SECONDS)
    await tour.ask("GET", f"payment_intents/{bare['id']}", {"expand": ["latest_charge.balance_transaction"]})
    await tour.ask("GET", "payment_intents", {"limit": 100, "expand": ["data.latest_charge.refunds"]})
    query = {"query": "status:'succeeded' AND amount>100", "limit": 2, "expand": ["total_count"]}
    await tour.ask("GET", "payment_intents/search", query)


async def _see_money_back(sim: RunningSim, tour: Tour) -> None:
    paid = await _pay(tour, "pm_card_visa")
    await tour.ask("GET", "balance_transactions", {"limit": 100, "expand": ["data.source"]})
    await tour.ask("GET", "payouts", {"limit": 100})
    refund = await tour.ask("POST", "refunds", {"payment_intent": paid["id"], "amount": 1_000})
    await tour.ask("POST", "refunds", {"charge": paid["latest_charge"], "reason": "duplicate"})
    for method in ("pm_card_pendingRefund", "pm_card_refundFail"):
        other = await _pay(tour, method)
        await tour.ask("POST", "refunds", {"payment_intent": other["id"]})
    await tour.ask("GET", "refunds", {"expand": ["data.charge", "data.balance_transaction"]})
    sim.clock.advance(2 * DAY_SECONDS)
    await tour.ask("GET", "refunds", {"expand": ["data.failure_balance_transaction", "data.payment_intent"]})
    await tour.ask("GET", f"refunds/{refund['id']}")
    await tour.ask("POST", f"refunds/{refund['id']}", {"metadata": {"a": "b"}})
    await tour.ask("POST", f"refunds/{refund['id']}/cancel", expect=400)
    await tour.ask("GET", f"charges/{paid['latest_charge']}/refunds")
    await tour.ask("GET", f"charges/{paid['latest_charge']}/refunds/{refund['id']}")
    transaction = refund["balance_transaction"]
    await tour.ask("GET", f"balance_transactions/{transaction}", {"expand": ["source"]})
    await tour.ask("GET", "balance")
    await tour.ask("GET", "account")


async def _see_disputes(sim: RunningSim, tour: Tour) -> None:
    evidence = {"won": "winning_evidence", "lost": "losing_evidence", "review": "something else", "open": ""}
    for text in evidence.values():
        paid = await _pay(tour, "pm_card_createDispute")
        page = await tour.ask("GET", "disputes", {"payment_intent": paid["id"]})
        path = f"disputes/{page['data'][0]['id']}"
        if text:
            await tour.ask("POST", path, {"evidence": {"uncategorized_text": text}})
        await tour.ask("GET", path, {"expand": ["charge"]})
    for text in ("something else", "escalate_inquiry_evidence", ""):
        paid = await _pay(tour, "pm_card_createDisputeInquiry")
        page = await tour.ask("GET", "disputes", {"charge": paid["latest_charge"]})
        if text:
            changes = {"evidence": {"uncategorized_text": text}, "metadata": {"a": "b"}}
            await tour.ask("POST", f"disputes/{page['data'][0]['id']}", changes)
    await _pay(tour, "pm_card_createDisputeProductNotReceived")
    newest = (await tour.ask("GET", "disputes", {"limit": 1}))["data"][0]
    await tour.ask("POST", f"disputes/{newest['id']}/close")
    sim.clock.advance(10 * DAY_SECONDS)
    await tour.ask("GET", "disputes", {"limit": 100})


async def _see_webhooks(tour: Tour) -> None:
    body = {"url": "http://127.0.0.1:9/hook", "enabled_events": ["charge.succeeded"], "description": "x"}
    endpoint = await tour.ask("POST", "webhook_endpoints", body)
    assert endpoint["secret"].startswith("whsec_")
    await tour.ask("POST", f"webhook_endpoints/{endpoint['id']}", {"disabled": True})
    await tour.ask("GET", f"webhook_endpoints/{endpoint['id']}")
    await tour.ask("GET", "webhook_endpoints")
    await tour.ask("DELETE", f"webhook_endpoints/{endpoint['id']}")
    after: dict[str, Any] = {}
    while True:
        page = await tour.ask("GET", "events", {"limit": 100, **after})
        if not page["has_more"]:
            break
        after = {"starting_after": page["data"][-1]["id"]}
    await tour.ask("GET", f"events/{page['data'][0]['id']}")


async def test_every_answer_has_the_shape_that_the_sdk_expects(sim: RunningSim, tour: Tour) -> None:
    """Every endpoint in every state it can produce: no field unknown, missing or of another type."""
    customer = await _see_customers(tour)
    await _see_intents(sim, tour)
    await _see_money_back(sim, tour)
    await _see_disputes(sim, tour)
    await tour.ask("DELETE", f"customers/{customer}")
    await _see_webhooks(tour)
    checked = f"{len(tour.routes)} endpoints, {len(tour.states)} states, {len(tour.event_types)} event types"
    print(f"{sum(tour.routes.values())} answers checked against the SDK's annotations: {checked}")
    assert tour.problems == []
    refused = {"POST /v1/refunds/{id}/cancel"}
    names = {pattern.replace(" ", " /v1/").replace("*", "{id}") for pattern, _, _ in ENDPOINTS}
    assert names - set(tour.routes) == refused
    seen: dict[str, set[str]] = {}
    for kind, state in tour.states:
        seen.setdefault(kind, set()).add(state)
    assert {kind: states - seen[kind] for kind, states in STATES.items()} == {kind: set() for kind in STATES}
    assert tour.event_types == EVENT_TYPES


async def test_the_check_itself_finds_what_is_wrong(tour: Tour) -> None:
    """A missing, an unknown, a mistyped and an unheard-of value each fail, at any depth."""
    intent = await _pay(tour, "pm_card_visa", expand=["latest_charge"])
    assert check_answer(intent, "intent") == []
    card = intent["latest_charge"]["payment_method_details"]["card"]
    for broken in (
        {name: value for name, value in intent.items() if name != "amount"},
        {**intent, "surprise": 1},
        {**intent, "amount": "5000"},
        {**intent, "status": "paid"},
        {**intent, "metadata": {"a": 1}},
        {**intent, "amount": None},
        {**intent, "latest_charge": {**intent["latest_charge"], "payment_method_details": {"card": card}}},
    ):
        assert len(check_answer(broken, "intent")) == 1
