import pytest
import stripe
from hypothesis import given
from hypothesis import strategies as st

from workflows.domain.webhook_signature import SIGNATURES_MAX, Refusal, find_signer, sign

NOW = 1_930_089_600
OLD, NEW, OTHER = b"whsec_old", b"whsec_new", b"whsec_other"
BODY = b'{"id": "evt_1"}'


def find(header: str | None, body: bytes = BODY, *, now: float = NOW) -> int | Refusal:
    """Look for the signer among two secrets of ours."""
    return find_signer(header, body, (OLD, NEW), now_epoch_seconds=now)


@pytest.mark.parametrize(("secret", "index"), [(OLD, 0), (NEW, 1)])
def test_each_of_several_secrets_signs(secret: bytes, index: int) -> None:
    """While a secret is rolled, both are good, and it is known which one it was."""
    assert find(sign(secret, BODY, at_epoch_seconds=NOW)) == index


def test_one_match_among_several_signatures_is_enough() -> None:
    """Stripe signs with each active secret, and another scheme beside them says nothing."""
    mine = sign(NEW, BODY, at_epoch_seconds=NOW).partition(",")[2]
    theirs = sign(OTHER, BODY, at_epoch_seconds=NOW)
    assert find(f"{theirs},{mine},v0=abc") == 1


def test_a_header_of_the_sdk_is_believed() -> None:
    """What Stripe's own SDK makes for tests is signed as we understand it."""
    header = stripe.WebhookSignature.generate_signature_header(BODY.decode(), NEW.decode(), NOW)
    assert find(header) == 1


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-301, Refusal.TOO_OLD),
        (-300, 1),
        (300, 1),
        (301, Refusal.IN_THE_FUTURE),
        (10**9, Refusal.IN_THE_FUTURE),
    ],
)
def test_the_tolerance_holds_both_ways(seconds: int, expected: int | Refusal) -> None:
    """Five minutes into the past, and five into the future, where the SDK would let anything pass."""
    assert find(sign(NEW, BODY, at_epoch_seconds=NOW + seconds)) == expected


@pytest.mark.parametrize(
    ("header", "refusal"),
    [
        (None, Refusal.MISSING),
        ("", Refusal.MISSING),
        ("t=1930089600", Refusal.UNREADABLE),
        ("v1=abc", Refusal.UNREADABLE),
        ("t=-5,v1=abc", Refusal.UNREADABLE),
        ("t=1e9,v1=abc", Refusal.UNREADABLE),
        ("t=²,v1=abc", Refusal.UNREADABLE),
        (f"t={'9' * 400},v1=abc", Refusal.UNREADABLE),
        ("t=1930089600,v1=", Refusal.NOT_OURS),
        ("t=1930089600,v1=ä", Refusal.NOT_OURS),
    ],
)
def test_what_is_no_signature_is_refused(header: str | None, refusal: Refusal) -> None:
    """Missing, unreadable or foreign: each is told apart, and none raises."""
    assert find(header) is refusal


def test_the_other_scheme_alone_is_no_signature() -> None:
    """A right digest under `v0` proves nothing."""
    assert find(sign(NEW, BODY, at_epoch_seconds=NOW).replace("v1=", "v0=")) is Refusal.UNREADABLE


def test_a_flood_of_signatures_is_not_compared_to_its_end() -> None:
    """The right one behind sixteen wrong ones is not found: nobody makes us hash or compare for ever."""
    mine = sign(NEW, BODY, at_epoch_seconds=NOW).partition(",")[2]
    wrong = ",".join(["v1=00"] * SIGNATURES_MAX)
    assert find(f"t={NOW},{wrong},{mine}") is Refusal.NOT_OURS


@given(st.integers(min_value=0, max_value=len(BODY) - 1), st.integers(min_value=1, max_value=255))
def test_a_changed_byte_is_noticed(place: int, change: int) -> None:
    """The signature is over the raw bytes: any other body was signed by nobody."""
    body = bytearray(BODY)
    body[place] ^= change
    assert find(sign(NEW, BODY, at_epoch_seconds=NOW), bytes(body)) is Refusal.NOT_OURS


def test_a_changed_time_is_noticed() -> None:
    """The time is signed as well, so an old body can't be made young."""
    header = sign(NEW, BODY, at_epoch_seconds=NOW - 1_000).replace(str(NOW - 1_000), str(NOW))
    assert find(header) is Refusal.NOT_OURS


def test_who_knows_no_secret_learns_nothing_of_the_time() -> None:
    """An old timestamp under a wrong signature is refused for the signature."""
    assert find(sign(OTHER, BODY, at_epoch_seconds=NOW - 1_000)) is Refusal.NOT_OURS


@given(st.text(max_size=200), st.binary(max_size=50))
def test_any_header_is_refused_in_words(header: str, body: bytes) -> None:
    """Whatever is sent, an answer comes out."""
    assert isinstance(find(header, body), Refusal)
