"""Lookups show what Stripe shows, and say so when they could not see everything."""

import json

import pytest

from activities.gateway import stripe_gateway
from activities.gateway.findings import PaymentMethodKind
from activities.sources.cells import read_customer
from tests.gateway.till import ACCOUNT, GOOD_CARD, Till, gateway_at, open_till
from tests.gateway.wire import answering, http, raw_server
from workflows.domain.answer import Lookup

NOW = 1_932_796_800


async def list_all(till: Till, customer: str | None = "cus_1") -> Lookup:
    """List everything of a customer, or of the account."""
    return await till.gateway.list_payment_intents(
        ACCOUNT,
        customer=customer,
        created_from_epoch_seconds=0,
        created_to_epoch_seconds=None,
        started_epoch_seconds=till.sim.clock.now(),
    )


async def test_a_retrieve_is_complete_and_measures_the_skew() -> None:
    """A PaymentIntent that is there is complete evidence, with the ledger's clock set against Stripe's."""
    async with open_till() as till:
        till.sim.clock.freeze(NOW)
        intent = await till.prepare()
        lookup = await till.gateway.retrieve_payment_intent(
            ACCOUNT, intent.id, started_epoch_seconds=NOW + 90.0
        )
    assert lookup.payment_intents == (intent,)
    assert lookup.complete
    assert lookup.failure is None
    assert lookup.started_epoch_seconds == NOW + 90.0
    assert lookup.skew_seconds == pytest.approx(90.0, abs=2.0)
    assert len(lookup.request_ids) == 1


async def test_not_found_is_incomplete() -> None:
    """A 404 may be the wrong account's: no evidence of absence."""
    async with open_till() as till:
        lookup = await till.gateway.retrieve_payment_intent(ACCOUNT, "pi_none", started_epoch_seconds=NOW)
    assert not lookup.complete
    assert lookup.failure is not None
    assert "resource_missing" in lookup.failure


async def test_another_payment_intent_than_asked_for_is_incomplete() -> None:
    """An answer about something else is no answer."""
    body = json.dumps(
        {"id": "pi_2", "object": "payment_intent", "status": "succeeded", "amount": 1, "currency": "eur"}
        | {"created": 1}
    )
    async with raw_server(answering(http("200 OK", body.encode()))) as wire, gateway_at(wire.url) as gateway:
        lookup = await gateway.retrieve_payment_intent(ACCOUNT, "pi_1", started_epoch_seconds=NOW)
    assert lookup.payment_intents == ()
    assert not lookup.complete


async def test_a_list_goes_through_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """All PaymentIntents of the customer come, newest first, and nobody else's."""
    monkeypatch.setattr(stripe_gateway, "PAGE_SIZE_MAX", 3)
    async with open_till() as till:
        ids = [(await till.prepare(version=version)).id for version in range(1, 9)]
        till.seed("pm_card_visa_2", customer="cus_2")
        lookup = await list_all(till)
        other = await list_all(till, customer="cus_2")
        everyone = await list_all(till, customer=None)
    assert [intent.id for intent in lookup.payment_intents] == ids[::-1]
    assert lookup.complete
    assert len(lookup.request_ids) == 3
    assert other.payment_intents == ()
    assert other.complete
    assert everyone.payment_intents == lookup.payment_intents


async def test_a_list_keeps_to_its_span() -> None:
    """Both bounds are included."""
    async with open_till() as till:
        ids = []
        for version, at in enumerate((NOW, NOW + 10, NOW + 20), start=1):
            till.sim.clock.freeze(at)
            ids.append((await till.prepare(version=version)).id)
        lookup = await till.gateway.list_payment_intents(
            ACCOUNT,
            customer="cus_1",
            created_from_epoch_seconds=NOW,
            created_to_epoch_seconds=NOW + 10,
            started_epoch_seconds=NOW + 20,
        )
    assert [intent.id for intent in lookup.payment_intents] == [ids[1], ids[0]]


async def test_a_failed_page_leaves_what_was_seen_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that breaks in the middle proves what it showed and no absence."""
    monkeypatch.setattr(stripe_gateway, "PAGE_SIZE_MAX", 2)
    async with open_till() as till:
        for version in range(1, 6):
            await till.prepare(version=version)
        fault = {"name": "second page", "match": {"method": "GET", "only": [2]}}
        till.sim.set_faults({**fault, "effect": {"kind": "error", "status": 503}})
        lookup = await list_all(till)
    assert len(lookup.payment_intents) == 2
    assert not lookup.complete
    assert lookup.failure is not None
    assert "503" in lookup.failure


async def test_a_list_with_too_many_pages_is_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a limit on everything, and reaching it is said."""
    monkeypatch.setattr(stripe_gateway, "PAGE_SIZE_MAX", 1)
    monkeypatch.setattr(stripe_gateway, "PAGES_PER_LOOKUP_MAX", 2)
    async with open_till() as till:
        for version in range(1, 3):
            await till.prepare(version=version)
        assert (await list_all(till)).complete
        await till.prepare(version=3)
        assert not (await list_all(till)).complete


BROKEN_LISTS = {
    "an item that is no PaymentIntent": {"object": "list", "data": [{"id": "pi_1"}], "has_more": False},
    "an item that is no object": {"object": "list", "data": [None], "has_more": False},
    "no data": {"object": "list", "has_more": False},
    "empty, and yet more": {"object": "list", "data": [], "has_more": True},
    "unsaid whether there is more": {"object": "list", "data": []},
}


@pytest.mark.parametrize("body", BROKEN_LISTS.values(), ids=BROKEN_LISTS.keys())
async def test_a_list_that_can_t_be_read_whole_is_incomplete(body: dict[str, object]) -> None:
    """What can't be read might have been the one PaymentIntent that matters."""
    answer = http("200 OK", json.dumps(body).encode())
    async with raw_server(answering(answer)) as wire, gateway_at(wire.url) as gateway:
        lookup = await gateway.list_payment_intents(
            ACCOUNT,
            customer="cus_1",
            created_from_epoch_seconds=0,
            created_to_epoch_seconds=None,
            started_epoch_seconds=NOW,
        )
        assert len(wire.requests) == 1
    assert not lookup.complete
    assert lookup.failure


async def test_the_default_payment_method_comes_first() -> None:
    """A customer with several cards is charged by the invoice default."""
    async with open_till() as till:
        till.sim.seed("cus_1", GOOD_CARD, "pm_card_visa_2", default="pm_card_visa_2")
        finding = await till.gateway.payment_method_of(ACCOUNT, "cus_1")
    assert (finding.kind, finding.payment_method) == (PaymentMethodKind.DEFAULT, "pm_card_visa_2")


async def test_a_only_card_is_taken_and_no_or_several_are_not() -> None:
    """Without a default, one card is a clear answer; none and several are for people."""
    async with open_till() as till:
        till.sim.seed("cus_one", "pm_card_visa_1")
        till.sim.seed("cus_none")
        till.sim.seed("cus_two", "pm_card_visa_2", "pm_card_visa_3")
        one, none, two, missing = [
            await till.gateway.payment_method_of(ACCOUNT, customer)
            for customer in ("cus_one", "cus_none", "cus_two", "cus_missing/../x")
        ]
    assert (one.kind, one.payment_method) == (PaymentMethodKind.ONLY_CARD, "pm_card_visa_1")
    assert none.kind is PaymentMethodKind.NONE
    assert two.kind is PaymentMethodKind.SEVERAL
    assert missing.kind in {PaymentMethodKind.CUSTOMER_MISSING, PaymentMethodKind.REFUSED}
    assert missing.payment_method is None


CUSTOM_IDS = tuple(
    f"cus_{odd}" for odd in ("=z1", "a.b@c:d", "1+2@x", "a b?x=1&y#z", "100%", "..", "üé", "[1];,!$'()*~")
)


async def test_a_customer_is_found_by_a_custom_id() -> None:
    """Any id that a source may hold is asked for as itself, also where a proxy stands in between."""
    async with open_till() as till:
        for number, customer in enumerate(CUSTOM_IDS):
            assert read_customer(customer) == customer
            till.sim.seed(customer, f"pm_card_visa_{number}")
        found = [await till.gateway.payment_method_of(ACCOUNT, customer) for customer in CUSTOM_IDS]
    assert [one.payment_method for one in found] == [
        f"pm_card_visa_{number}" for number in range(len(CUSTOM_IDS))
    ]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(status, PaymentMethodKind.REFUSED) for status in (400, 404, 405, 410, 414, 422)]
    + [(status, PaymentMethodKind.UNKNOWN) for status in (401, 403, 408, 409, 424, 429, 500, 503)],
)
async def test_a_question_that_is_wrong_is_not_asked_for_ever(status: int, kind: PaymentMethodKind) -> None:
    """What is wrong about one customer is a finding; credentials, locks, limits and trouble are unknown."""
    body = b'{"error": {"type": "invalid_request_error", "message": "no"}}'
    async with (
        raw_server(answering(http(f"{status} X", body))) as wire,
        gateway_at(wire.url) as gateway,
    ):
        finding = await gateway.payment_method_of(ACCOUNT, "cus_1")
    assert (finding.kind, finding.payment_method) == (kind, None)
    assert f"HTTP {status}" in finding.reason


async def test_an_answer_about_somebody_else_is_none() -> None:
    """Another customer's answer says nothing about this one, however often it comes."""
    body = b'{"id": "cus_2", "object": "customer"}'
    async with raw_server(answering(http("200 OK", body))) as wire, gateway_at(wire.url) as gateway:
        finding = await gateway.payment_method_of(ACCOUNT, "cus_1")
    assert finding.kind is PaymentMethodKind.REFUSED


async def test_a_missing_customer_is_a_value() -> None:
    """Stripe does not know the customer in this account."""
    async with open_till() as till:
        finding = await till.gateway.payment_method_of(ACCOUNT, "cus_missing")
    assert finding.kind is PaymentMethodKind.CUSTOMER_MISSING


async def test_a_deleted_customer_is_a_value() -> None:
    """Stripe goes on answering for deleted customers, with `deleted`."""
    body = b'{"id": "cus_1", "object": "customer", "deleted": true}'
    async with raw_server(answering(http("200 OK", body))) as wire, gateway_at(wire.url) as gateway:
        finding = await gateway.payment_method_of(ACCOUNT, "cus_1")
    assert finding.kind is PaymentMethodKind.CUSTOMER_DELETED


async def test_no_answer_about_a_customer_is_unknown() -> None:
    """A failed question is asked again, not taken for a customer without a card."""
    async with open_till() as till:
        till.seed()
        for only in (1, 2):
            fault = {"name": f"question {only}", "match": {"method": "GET", "only": [only]}}
            till.sim.set_faults({**fault, "effect": {"kind": "error", "status": 500}})
            finding = await till.gateway.payment_method_of(ACCOUNT, "cus_1")
            assert finding.kind is PaymentMethodKind.UNKNOWN
            assert "500" in finding.reason
