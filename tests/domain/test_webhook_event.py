import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.domain.answer import METADATA_CHARGE
from workflows.domain.errors import InvalidInput
from workflows.domain.webhook_event import read_event

CHARGE = "ab" * 16


def event(subject: dict[str, Any] | None = None, **changes: Any) -> bytes:
    """Return the body of an event about an object."""
    fields: dict[str, Any] = {
        "id": "evt_1",
        "object": "event",
        "type": "payment_intent.succeeded",
        "created": 1_930_089_600,
        "livemode": False,
        "data": {"object": subject if subject is not None else {"object": "payment_intent", "id": "pi_1"}},
        "request": {"id": "req_1", "idempotency_key": "confirm_x"},
    }
    return json.dumps({**fields, **changes}).encode()


def test_an_event_names_what_to_look_at() -> None:
    """Id, type, object and identity are read; nothing that the event says about the object."""
    read = read_event(
        event(
            {"object": "payment_intent", "id": "pi_1", "status": "x", "metadata": {METADATA_CHARGE: CHARGE}}
        )
    )
    assert (read.event_id, read.type, read.payment_intent, read.charge_id) == (
        "evt_1",
        "payment_intent.succeeded",
        "pi_1",
        CHARGE,
    )
    assert (read.account, read.live, read.request_id) == (None, False, "req_1")
    assert "status" not in repr(read)


@pytest.mark.parametrize("kind", ["charge", "refund", "dispute"])
@pytest.mark.parametrize("reference", ["pi_1", {"id": "pi_1", "object": "payment_intent"}])
def test_what_hangs_on_a_payment_leads_to_it(kind: str, reference: object) -> None:
    """Charges, refunds and disputes are about their PaymentIntent, expanded or not."""
    assert (
        read_event(event({"object": kind, "id": "x_1", "payment_intent": reference})).payment_intent == "pi_1"
    )


@pytest.mark.parametrize(
    "subject",
    [
        {},
        {"object": "customer", "id": "cus_1"},
        {"object": "payment_intent", "id": "../../v1/refunds"},
        {"object": "payment_intent", "id": "pi_1\n"},
        {"object": "charge", "id": "ch_1", "payment_intent": None},
        {"object": "charge", "id": "ch_1", "payment_intent": {"id": 5}},
        {"object": "payment_intent", "id": "pi_" + "x" * 300},
    ],
)
def test_an_object_without_a_payment_names_none(subject: dict[str, Any]) -> None:
    """What is no id is not one, and the event is kept all the same."""
    assert read_event(event(subject)).payment_intent is None


@pytest.mark.parametrize("identity", [None, 5, "", "AB" * 16, "ab" * 15, "ab" * 16 + "\n", ["ab" * 16]])
def test_an_identity_in_another_spelling_is_none(identity: object) -> None:
    """Metadata is anybody's text: only what can be an identity is taken for one."""
    subject = {"object": "payment_intent", "id": "pi_1", "metadata": {METADATA_CHARGE: identity}}
    assert read_event(event(subject)).charge_id is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"object": "v2.core.event", "id": "evt_1", "type": "a.b"}',
        event(id=None),
        event(id="evt_1 "),
        event(id="ev_1"),
        event(id="evt_" + "1" * 300),
        event(type=""),
        event(type="Not A Type"),
        event(created="now"),
        event(created=True),
        event(created=10**15),
        event(created=-1),
        event(livemode=None),
        event(livemode=1),
        event(account=5),
        event(account="acct 1"),
    ],
)
def test_what_is_no_event_is_refused(body: bytes) -> None:
    """Not JSON, another API's event, or a field that can't be: refused in one way."""
    with pytest.raises(InvalidInput):
        read_event(body)


@pytest.mark.parametrize("data", [None, [], "x", {"object": None}, {"object": []}])
def test_an_event_about_nothing_is_an_event(data: object) -> None:
    """It is acknowledged and ignored later: Stripe would only bring it again."""
    assert read_event(event(data=data)).object_kind is None


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x, max_size=3)))
def test_any_object_is_read_or_refused(value: Any) -> None:
    """No content of any field raises anything else."""
    for name in ("id", "type", "created", "livemode", "account", "data", "request"):
        try:
            read_event(event(**{name: value}))
        except InvalidInput:
            continue
