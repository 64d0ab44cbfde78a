from urllib.parse import quote, unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workflows.domain.cap import Outcome, Stand, judge_outcome, stand_of
from workflows.domain.vault import ENDPOINTS, Effect, can_be_asked_for, is_plain_path, match_endpoint


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/v1/payment_intents", ("POST /v1/payment_intents", ())),
        ("GET", "/v1/payment_intents/search", ("GET /v1/payment_intents/search", ())),
        ("GET", "/v1/payment_intents/pi_1", ("GET /v1/payment_intents/{id}", ("pi_1",))),
        ("POST", "/v1/payment_intents/pi_1/confirm", ("POST /v1/payment_intents/{id}/confirm", ("pi_1",))),
        (
            "GET",
            "/v1/customers/a%40b/payment_methods",
            ("GET /v1/customers/{id}/payment_methods", ("a%40b",)),
        ),
        ("GET", "/v1/customers/a.b@c:d", ("GET /v1/customers/{id}", ("a.b@c:d",))),
        ("GET", "/v1/payment_intents/pi.1", None),
        ("POST", "/v1/payment_intents/pi%201/confirm", None),
        ("POST", "/v1/payment_intents/{id}/confirm", None),
        ("POST", "/v1/payment_intents/", None),
        ("POST", "/v1/charges", None),
        ("DELETE", "/v1/customers/cus_1", None),
        ("GET", "/v2/payment_intents", None),
        ("GET", "v1/account", None),
    ],
)
def test_a_request_is_found_in_the_catalog(
    method: str, path: str, expected: tuple[str, tuple[str, ...]] | None
) -> None:
    """Names outrank ids, ids of PaymentIntents are plain, and what is not in the catalog is nothing."""
    assert match_endpoint(method, path) == expected


@given(st.text(st.sampled_from("/.%2fFeE5cC0?#;+\\ a=@\x7f\u0085é"), max_size=12).map("/v1/".__add__))
@example("/v1/customers/%2e%2e/balance")
@example("/v1/customers/%252e%252e")
@example("/v1/customers/a%25%32%66b")
@example("/v1/customers/a%5c..%5cb")
@example("/v1/customers/%ff")
def test_a_plain_path_has_nothing_to_resolve(path: str) -> None:
    """However often a reader unescapes it, it has the same segments, no steps, backslashes or controls."""
    if not is_plain_path(path):
        return
    assert path.isascii()
    assert path.isprintable()
    assert not any(character in path for character in "?#;+ \\")
    read = path
    for _ in range(3):
        read = unquote(read, errors="strict")
        segments = read[1:].split("/")
        assert len(segments) == path.count("/")
        assert not {"", ".", ".."} & set(segments)
        assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in read)
        assert "\\" not in read


@given(st.text(max_size=30))
@example("=cus_z1")
@example("a.b@c:d")
@example("100%")
@example("..")
@example("a%2Fb")
@example("é ü?#;+&")
def test_an_escaped_id_is_the_id_of_its_customer(customer: str) -> None:
    """Whatever id can be asked for goes through the allowlist as itself, and what can't does not."""
    path = f"/v1/customers/{quote(customer, safe='', errors='surrogatepass')}"
    is_plain = is_plain_path(path)
    assert is_plain == can_be_asked_for(customer)
    if is_plain:
        matched = match_endpoint("GET", f"{path}/payment_methods")
        assert matched is not None
        assert (matched[0], unquote(matched[1][0])) == ("GET /v1/customers/{id}/payment_methods", customer)


def test_nothing_that_moves_money_unseen_is_in_the_catalog() -> None:
    """Whoever adds an endpoint that moves money teaches the proxy how to count it."""
    moving = {name for name, effect in ENDPOINTS.items() if effect not in {Effect.READ, Effect.HARMLESS}}
    assert {name.split("/")[2] for name in moving} == {"payment_intents", "refunds"}


@pytest.mark.parametrize(
    ("status", "code", "named", "expected"),
    [
        (200, None, True, Outcome.EXECUTED),
        (200, None, False, Outcome.UNKNOWN),
        (402, "card_declined", True, Outcome.EXECUTED),
        (402, "card_declined", False, Outcome.UNKNOWN),
        (400, None, False, Outcome.NOT_EXECUTED),
        (401, None, False, Outcome.NOT_EXECUTED),
        (403, None, False, Outcome.NOT_EXECUTED),
        (404, None, False, Outcome.NOT_EXECUTED),
        (429, "lock_timeout", False, Outcome.NOT_EXECUTED),
        (409, "idempotency_key_in_use", False, Outcome.NOT_EXECUTED),
        (409, None, False, Outcome.UNKNOWN),
        (424, None, False, Outcome.UNKNOWN),
        (500, None, True, Outcome.UNKNOWN),
        (503, "upstream_not_reached", False, Outcome.UNKNOWN),
        (307, None, False, Outcome.UNKNOWN),
        (None, None, False, Outcome.UNKNOWN),
    ],
)
def test_an_answer_determines(
    status: int | None, code: str | None, *, named: bool, expected: Outcome
) -> None:
    """Success and decline determine a confirm, refusals show that it did nothing, all else leaves it open."""
    assert judge_outcome(Effect.CONFIRM, http_status=status, code=code, names_object=named) is expected
    assert judge_outcome(Effect.READ, http_status=status, code=code, names_object=named) is Outcome.READ


def test_a_status_that_nobody_knows_holds() -> None:
    """Only what surely waits or has ended lets go of the money."""
    stands = {status: stand_of(status) for status in ("succeeded", "canceled", "requires_confirmation")}
    assert stands == {
        "succeeded": Stand.SETTLES,
        "canceled": Stand.ENDS,
        "requires_confirmation": Stand.WAITS,
    }
    for status in ("processing", "requires_action", "requires_capture", "a_new_one", ""):
        assert stand_of(status) is Stand.MOVES
