"""Vault keys: derived ones are the same everywhere and differ in everything that they are derived from."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.domain.errors import InvariantViolation
from workflows.domain.vault_keys import (
    CHANCE_BYTES,
    Mode,
    derive_vault_key,
    format_vault_key,
    parse_vault_key,
    random_vault_key,
)

SECRET = b"s" * 32
RUN = {"run_id": "billing-run/acct_1/2031-03", "account": "acct_1", "scope": "billing"}
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x1f"), max_size=20)
derived = st.builds(
    derive_vault_key, st.binary(min_size=32), run_id=texts, account=texts, mode=st.sampled_from(Mode),
    scope=texts, serial=st.integers(min_value=1),
)  # fmt: skip


def derive(secret: bytes = SECRET, *, mode: Mode = Mode.TEST, serial: int = 1, **fields: str) -> str:
    """Return the key of the test's run, with these fields in place of its own."""
    return derive_vault_key(secret, mode=mode, serial=serial, **{**RUN, **fields})


def test_a_derived_key_never_changes() -> None:
    """A worker of the next release derives the key whose hash this one stored."""
    assert derive() == "vk_test_6nviiRuXbVVvWNrmOI14bHLqNBnmTLtVeQGmqdPxX9Ke6mb0ZA9dr"


@pytest.mark.parametrize(
    "other",
    [
        derive(b"t" * 32),
        derive(serial=2),
        derive(mode=Mode.LIVE),
        derive(run_id="billing-run/acct_1/2031-04"),
        derive(account="acct_2"),
        derive(scope="planning"),
        derive(account="acct_1billing", scope=""),
    ],
)
def test_whatever_a_key_stands_for_makes_another_key(other: str) -> None:
    """Secret, run, account, mode, scope and serial each change the key, and fields never run together."""
    assert other != derive()


@given(derived)
def test_every_key_has_the_one_shape(key: str) -> None:
    """Prefix, 10 digits of the public id, 43 that are secret; scanners take it for one word."""
    known = parse_vault_key(key)
    assert known is not None
    assert (len(known.key_id), len(key)) == (len("vk_test_") + 10, len("vk_test_") + 10 + 43)
    assert key.startswith(f"{known.key_id[:8]}{known.key_id[8:]}")
    assert known.sha256 == hashlib.sha256(key.encode()).digest()


@pytest.mark.parametrize("edge", [bytes(CHANCE_BYTES), b"\xff" * CHANCE_BYTES])
def test_the_smallest_and_the_largest_number_fit(edge: bytes) -> None:
    """256 bits take 43 digits in base 62, and none is lost."""
    assert parse_vault_key(random_vault_key(Mode.TEST, edge)) is not None


chances = st.binary(min_size=CHANCE_BYTES, max_size=CHANCE_BYTES)


@given(chances, chances)
def test_two_draws_are_two_keys(first: bytes, second: bytes) -> None:
    """The whole entropy of the secret half is in the key."""
    keys = {random_vault_key(Mode.LIVE, chance)[18:] for chance in (first, second)}
    assert len(keys) == len({first[32:], second[32:]})


@pytest.mark.parametrize(
    "text",
    [
        "", "vk_test_", derive()[:-1], f"{derive()}0", derive().replace("test", "prod"), f"{derive()[:-1]}_",
        f"{derive()[:-1]}\u0663", f" {derive()}", f"{derive()}\n", "sk_test_abc", derive()[:18],
    ],
)  # fmt: skip
def test_anything_else_is_no_vault_key(text: str) -> None:
    """The shape is exact, and the public id alone is no key."""
    assert parse_vault_key(text) is None


def test_what_can_t_be_made_safely_is_refused() -> None:
    """A short secret, a serial below 1, a field that runs into the next one, halves of another length."""
    with pytest.raises(InvariantViolation):
        derive(b"s" * 31)
    with pytest.raises(InvariantViolation):
        derive(serial=0)
    with pytest.raises(InvariantViolation):
        derive(run_id="a\x1fb")
    with pytest.raises(InvariantViolation):
        random_vault_key(Mode.TEST, b"short")
    with pytest.raises(InvariantViolation):
        format_vault_key(Mode.TEST, "a" * 11, "b" * 42)
