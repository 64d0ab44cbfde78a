"""Reading Stripe's JSON never raises and never guesses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from activities.gateway.classify import AnswerReader, read_date, read_retry_after
from workflows.domain.answer import Transport
from workflows.domain.keys import Operation
from workflows.domain.verdict import Proof, judge

SECRET = "sk_test_4Synthetic8Key0Of15Our23Tests42"
READER = AnswerReader(SECRET)
INTENT: dict[str, object] = {
    "id": "pi_1",
    "object": "payment_intent",
    "status": "succeeded",
    "amount": 100,
    "currency": "eur",
    "created": 1_932_796_800,
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.just(SECRET),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "object", "status", "error", "payment_intent", "metadata", "code", "message"]
            )
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
bodies = st.dictionaries(st.sampled_from(["error", *INTENT, "metadata", "customer"]), json_values)
header_values = st.text(max_size=40) | st.sampled_from(["true", "5", "Tue, 01 Apr 2031 08:00:00 GMT"])
headers = st.dictionaries(
    st.sampled_from(["Date", "Retry-After", "Request-Id", "Idempotent-Replayed"]), header_values
)


@given(st.integers(min_value=100, max_value=599), headers, bodies, st.sampled_from(Operation))
def test_any_json_becomes_an_answer(
    status: int, header: dict[str, str], body: dict[str, object], operation: Operation
) -> None:
    """Any object under any status is read without an error, judged, and holds no secret."""
    answer = READER.answer(status, header, body)
    assert answer.transport is Transport.ANSWERED
    assert SECRET not in repr(answer)
    judge(operation, answer, first_send=True)


@pytest.mark.parametrize("name", ["id", "status", "amount", "currency", "created", "object"])
@pytest.mark.parametrize("value", [None, "", True, -1, 1.5, [], {}, "a\nb", "x" * 300, "é"])
def test_a_payment_intent_without_a_deciding_field_is_none(name: str, value: object) -> None:
    """A 200 about an unreadable PaymentIntent is unknown, and surely not a payment."""
    answer = READER.answer(200, {}, {**INTENT, name: value})
    assert answer.payment_intent is None
    assert judge(Operation.CONFIRM, answer, first_send=True).proof is Proof.UNKNOWN


def test_references_are_read_expanded_or_not() -> None:
    """A customer, a payment method or a charge may come as an id or as a whole object."""
    body = {**INTENT, "customer": {"id": "cus_1"}, "payment_method": "pm_1", "latest_charge": {"id": "ch_1"}}
    intent = READER.payment_intent(body)
    assert intent is not None
    assert (intent.customer, intent.payment_method, intent.latest_charge) == ("cus_1", "pm_1", "ch_1")


def test_only_our_own_metadata_is_kept() -> None:
    """Other metadata may be personal data; it never enters."""
    intent = READER.payment_intent(
        {**INTENT, "metadata": {"chargeonce_charge": "x", "email": "a@example.org"}}
    )
    assert intent is not None
    assert intent.metadata == {"chargeonce_charge": "x"}


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        ("1.5", 1.5),
        ("999999", 3600.0),
        ("Tue, 01 Apr 2031 08:00:30 GMT", 30.0),
        ("Tue, 01 Apr 2031 07:00:00 GMT", 0.0),
        ("Wed, 02 Apr 2031 08:00:00 GMT", 3600.0),
        ("", None),
        ("-1", None),
        ("inf", None),
        ("nan", None),
        ("soon", None),
        ("٣", None),
        ("1e9", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, seconds: float | None) -> None:
    """Both forms are read, bounded by an hour, against the answer's own Date; anything else is nothing."""
    assert read_retry_after({"Retry-After": value, "Date": "Tue, 01 Apr 2031 08:00:00 GMT"}) == seconds


def test_a_retry_date_without_a_date_is_nothing() -> None:
    """Without Stripe's clock there is nothing to set the date against."""
    assert read_retry_after({"Retry-After": "Tue, 01 Apr 2031 08:00:30 GMT"}) is None


@given(st.text())
def test_a_date_is_read_or_not_and_never_raises(text: str) -> None:
    """Garbage in `Date` is no date."""
    assert read_date(text) is None or isinstance(read_date(text), float)


@given(st.text(max_size=2_000), st.integers(min_value=0, max_value=2_000))
def test_texts_come_out_printable_short_and_without_the_key(text: str, position: int) -> None:
    """Wherever the key stands in a text, it does not come out, and the rest is one printable line."""
    cleaned = READER.text(text[:position] + SECRET + text[position:])
    assert cleaned is not None
    assert SECRET not in cleaned
    assert len(cleaned) <= 500
    assert "\n" not in cleaned
    cleaned.encode()


@pytest.mark.parametrize("code", ["vault_key_unknown", "upstream_not_reached", "date"])
def test_the_proxys_clock_is_not_stripes(code: str) -> None:
    """What the proxy answers itself says nothing about Stripe's time, and its wait still counts."""
    headers = CIMultiDict({"Date": "Tue, 01 Apr 2031 08:00:00 GMT", "Retry-After": "3"})
    proxys = CIMultiDict({**headers, "chargeonce-proxy": code})
    for answer in (READER.answer(503, proxys, {}), READER.no_answer(Transport.NO_ANSWER, "", headers=proxys)):
        assert (answer.stripe_epoch_seconds, answer.retry_after_seconds) == (None, 3)
    assert READER.answer(200, headers, {}).stripe_epoch_seconds == 1_932_796_800
