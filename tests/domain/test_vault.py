import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.domain.cap import Outcome, Stand, judge_outcome, stand_of
from workflows.domain.vault import ENDPOINTS, Effect, is_plain_path, match_endpoint


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


@given(st.text(max_size=40))
def test_a_plain_path_has_nothing_to_resolve(path: str) -> None:
    """Whatever the text: no dots, no doubled or escaped slashes, no escaped escapes, no controls."""
    if is_plain_path(path):
        lowered = path.lower()
        assert not any(
            part in lowered for part in (".", "//", "\\", "%2f", "%2e", "%5c", "%25", "%0", "%1", "%7f")
        )
        assert path.isascii()
        assert path.isprintable()
        assert not path.endswith("/") or path == "/"


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
