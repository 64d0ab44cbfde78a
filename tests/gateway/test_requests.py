"""The frozen requests: pure, JSON-able, and refused where they can't be sent exactly."""

import json

import pytest

from activities.gateway.requests import cancel_request, confirm_request, create_request, customer_path
from tests.gateway.till import IDENTITY, create, create_key
from workflows.domain.errors import InvalidInput, InvariantViolation
from workflows.domain.keys import canonical_parameters

GOOD = {
    "amount_minor": 1,
    "currency": "eur",
    "customer": "cus_1",
    "payment_method": "pm_1",
    "charge_id": IDENTITY.charge_id,
    "create_key": create_key(),
    "period": "2031-03",
    "line": "base",
    "run": "run_1",
}


def test_a_create_carries_the_charge_s_identity_and_its_own_key() -> None:
    """The metadata names what the PaymentIntent is for; nothing in the parameters can move money."""
    request = create()
    assert request.path == "/v1/payment_intents"
    assert request.parameters["metadata"] == {
        "chargeonce_charge": IDENTITY.charge_id,
        "chargeonce_create_key": create_key(),
        "chargeonce_period": "2031-03",
        "chargeonce_line": "base",
        "chargeonce_run": "run_1",
    }
    assert not {"confirm", "off_session", "payment_method_types"} & request.parameters.keys()


def test_a_confirm_is_off_session_and_names_its_card() -> None:
    """A declined PaymentIntent has lost its payment method, so each confirm names it."""
    request = confirm_request("pi_1", "pm_1")
    assert request.path == "/v1/payment_intents/pi_1/confirm"
    assert request.parameters == {"off_session": True, "payment_method": "pm_1"}


def test_a_cancel_goes_to_its_payment_intent() -> None:
    """The path carries the id."""
    assert cancel_request("pi_1").path == "/v1/payment_intents/pi_1/cancel"


def test_requests_survive_being_frozen() -> None:
    """What the ledger stores as JSON and reads back is what was made."""
    for request in (create(), confirm_request("pi_1", "pm_1"), cancel_request("pi_1")):
        assert json.loads(canonical_parameters(request.parameters)) == request.parameters


def test_a_description_is_sent_only_where_there_is_one() -> None:
    """No empty description reaches the customer."""
    assert "description" not in create_request(**GOOD).parameters  # type: ignore[arg-type]
    described = create_request(**GOOD, description="March")  # type: ignore[arg-type]
    assert described.parameters["description"] == "March"


@pytest.mark.parametrize(
    "wrong",
    [
        {"amount_minor": 0},
        {"amount_minor": -1},
        {"amount_minor": True},
        {"currency": "EUR"},
        {"currency": "euro"},
        {"line": ""},
        {"line": "x" * 501},
        {"run": ""},
        {"description": "x" * 501},
    ],
)
def test_what_can_t_be_sent_exactly_is_refused(wrong: dict[str, object]) -> None:
    """Amounts below 1, currencies that are none, and texts beyond Stripe's limits."""
    with pytest.raises(InvalidInput):
        create_request(**{**GOOD, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("intent_id", ["", "pi_1/../../refunds", "pi 1", "pi_1?x=y"])
def test_an_id_can_t_lead_to_another_path(intent_id: str) -> None:
    """Ids are put into paths only if they are ids."""
    with pytest.raises(InvariantViolation):
        confirm_request(intent_id, "pm_1")
    with pytest.raises(InvariantViolation):
        cancel_request(intent_id)


def test_a_customer_from_outside_is_escaped() -> None:
    """A customer id comes from a file, so it may hold anything."""
    assert customer_path("cus_1/../x?y") == "/v1/customers/cus_1%2F..%2Fx%3Fy"
