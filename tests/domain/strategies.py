"""Answers, PaymentIntents and lookups of every shape that Stripe or the wire could produce."""

from hypothesis import strategies as st

from workflows.domain.answer import (
    METADATA_CHARGE,
    METADATA_CREATE_KEY,
    Answer,
    Lookup,
    PaymentIntent,
    Transport,
)
from workflows.domain.keys import Operation

KNOWN_STATUSES = (
    "requires_payment_method",
    "requires_confirmation",
    "requires_action",
    "processing",
    "requires_capture",
    "canceled",
    "succeeded",
)
CODES = (
    "card_declined",
    "authentication_required",
    "authentication_not_handled",
    "idempotency_key_in_use",
    "lock_timeout",
    "rate_limit",
    "spend_cap_exceeded",
    "upstream_not_reached",
    "payment_intent_unexpected_state",
    "resource_missing",
)

operations = st.sampled_from(Operation)
statuses = st.sampled_from(KNOWN_STATUSES) | st.text(max_size=20)
codes = st.none() | st.sampled_from(CODES) | st.text(max_size=20)
http_statuses = (
    st.none()
    | st.sampled_from((200, 201, 204, 302, 400, 401, 402, 403, 404, 409, 424, 429, 500, 502, 503, 504))
    | st.integers(min_value=100, max_value=599)
)
charge_ids = st.sampled_from(("a" * 32, "b" * 32))
create_keys = st.sampled_from(("create_x_v1", "create_x_v2"))

payment_intents = st.builds(
    PaymentIntent,
    id=st.sampled_from(("pi_1", "pi_2", "pi_3")),
    status=statuses,
    amount_minor=st.sampled_from((100, 200)),
    currency=st.sampled_from(("eur", "usd")),
    created_epoch_seconds=st.integers(min_value=0, max_value=2**33),
    customer=st.sampled_from((None, "cus_1", "cus_2")),
    payment_method=st.sampled_from((None, "pm_1")),
    latest_charge=st.sampled_from((None, "ch_1", "ch_2")),
    last_error_code=codes,
    last_decline_code=codes,
    metadata=st.fixed_dictionaries(
        {}, optional={METADATA_CHARGE: charge_ids, METADATA_CREATE_KEY: create_keys}
    ),
)

answers = st.builds(
    Answer,
    transport=st.sampled_from(Transport),
    http_status=http_statuses,
    payment_intent=st.none() | payment_intents,
    error_type=st.none()
    | st.sampled_from(("card_error", "idempotency_error", "invalid_request_error", "api_error"))
    | st.text(max_size=20),
    code=codes,
    decline_code=codes,
    message=st.none() | st.text(max_size=20),
    replayed=st.booleans(),
    rate_limited_reason=st.none() | st.sampled_from(("global-rate", "endpoint-concurrency")),
)

lookups = st.builds(
    Lookup,
    payment_intents=st.lists(payment_intents, max_size=5).map(tuple),
    complete=st.booleans(),
    started_epoch_seconds=st.floats(min_value=0, max_value=2**33),
    skew_seconds=st.none() | st.floats(min_value=-200, max_value=200),
)
