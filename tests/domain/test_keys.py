"""Identities and keys: one for each thing owed, and nothing in them that varies per attempt."""

import inspect
import json
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from workflows.domain.errors import InvalidInput, InvariantViolation
from workflows.domain.keys import (
    KEY_LENGTH_MAX,
    SEPARATOR,
    ChargeIds,
    Identity,
    Operation,
    canonical,
    canonical_parameters,
    fingerprint,
    key_for,
)

texts = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=30).filter(
    lambda text: text.strip() != ""
)
periods = st.builds(
    lambda year, month: f"{year:04d}-{month:02d}",
    st.integers(min_value=2000, max_value=2999),
    st.integers(min_value=1, max_value=12),
)
identities = st.builds(Identity.of, texts, texts, periods, texts)
versions = st.integers(min_value=1, max_value=10**6)
versioned = st.sampled_from([operation for operation in Operation if operation is not Operation.REFUND])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
parameter_sets = st.dictionaries(st.text(max_size=8), json_values, max_size=5)


@given(identities, identities)
def test_two_identities_never_share_a_charge_id(first: Identity, second: Identity) -> None:
    """The charge id is the same exactly if all four fields are."""
    assert (first.charge_id == second.charge_id) == (first == second)


@given(identities)
def test_ids_made_in_a_hurry_are_the_same(identity: Identity) -> None:
    """What makes the ids of a whole plan agrees with the identity of each line."""
    ids = ChargeIds(identity.account, identity.period)
    assert ids.of(identity.customer, identity.line) == identity.charge_id


@given(texts, texts)
def test_ids_made_in_a_hurry_are_of_canonical_fields_alone(customer: str, line: str) -> None:
    """A field in another spelling is refused: it would be hashed as one thing and stored as another."""
    is_canonical = (canonical(customer, "c"), canonical(line, "l")) == (customer, line)
    ids = ChargeIds("acct_1", "2031-03")
    if is_canonical:
        assert ids.of(customer, line) == Identity.of("acct_1", customer, "2031-03", line).charge_id
    else:
        with pytest.raises(InvalidInput, match="canonical"):
            ids.of(customer, line)


@pytest.mark.parametrize("broken", ["", " cus_1", "cus\x1f1", "cus\n1"])
def test_ids_made_in_a_hurry_keep_separators_out(broken: str) -> None:
    """Nothing that could move text from one field into another is hashed."""
    with pytest.raises(InvalidInput):
        ChargeIds("acct_1", "2031-03").of(broken, "base")


@given(st.lists(texts, min_size=8, max_size=8))
def test_fields_can_t_run_into_each_other(fields: list[str]) -> None:
    """Moving text from one field to its neighbour makes another identity."""
    account, customer, line, extra = fields[:4]
    first = Identity.of(account, customer + extra, "2031-03", line)
    second = Identity.of(account + customer, extra, "2031-03", line)
    assume(first != second)
    assert first.charge_id != second.charge_id


@given(identities)
def test_an_identity_is_canonical_already(identity: Identity) -> None:
    """Making an identity of an identity's own fields changes nothing."""
    again = Identity.of(identity.account, identity.customer, identity.period, identity.line)
    assert again == identity


@given(texts, st.sampled_from([" ", "\u00a0", "\u2003"]))
def test_spaces_around_and_unicode_forms_make_no_difference(text: str, space: str) -> None:
    """A field is the same with spaces around it and in composed or decomposed form."""
    decomposed = unicodedata.normalize("NFD", text)
    assert canonical(f"{space}{decomposed}{space}", "customer") == canonical(text, "customer")


@pytest.mark.parametrize(
    "bad", ["", " ", "\t\n", f"a{SEPARATOR}b", "a\x00b", "a\nb", "a\x7fb", "a\x85b", "\x1fa", "a\x1f", "a\t"]
)
@pytest.mark.parametrize("position", range(4))
def test_empty_fields_and_control_characters_are_refused(bad: str, position: int) -> None:
    """Nothing empty and no control character gets into an identity, the separator least of all."""
    fields = ["acct_1", "cus_1", "2031-03", "base"]
    fields[position] = bad
    with pytest.raises(InvalidInput):
        Identity.of(*fields)


def test_a_charge_id_is_what_it_always_was() -> None:
    """The derivation is frozen: a change of it would charge every open charge again."""
    identity = Identity.of("acct_1", "cus_1", "2031-03", "base")
    assert identity.charge_id == "1f128d474a45589538e5020700107c4a"
    assert key_for(Operation.CREATE, identity.charge_id, 1) == f"create_{identity.charge_id}_v1"
    assert key_for(Operation.CONFIRM, identity.charge_id, 2) == f"confirm_{identity.charge_id}_v2"
    assert key_for(Operation.CANCEL, "pi_1", 1) == "cancel_pi_1_v1"
    assert key_for(Operation.REFUND, "rr_1", 1) == "refund_rr_1"


@given(st.tuples(versioned, identities, versions), st.tuples(versioned, identities, versions))
def test_two_keys_are_equal_only_for_the_same_thing(
    first: tuple[Operation, Identity, int], second: tuple[Operation, Identity, int]
) -> None:
    """A key names one operation on one subject at one version."""
    keys = [
        key_for(operation, identity.charge_id, version) for operation, identity, version in (first, second)
    ]
    assert (keys[0] == keys[1]) == (first == second)


@given(versioned, identities, versions)
def test_a_key_is_the_same_at_every_attempt(operation: Operation, identity: Identity, version: int) -> None:
    """Derived twice, a key is the same and fits Stripe's limit."""
    key = key_for(operation, identity.charge_id, version)
    assert key == key_for(operation, identity.charge_id, version)
    assert 1 <= len(key) <= KEY_LENGTH_MAX
    assert key.isascii()
    assert key.isprintable()


def test_nothing_that_varies_per_attempt_can_enter_a_key() -> None:
    """A key is made of operation, subject and version, an identity of four fields: no other way leads in."""
    assert list(inspect.signature(key_for).parameters) == ["operation", "subject", "version"]
    assert list(inspect.signature(Identity).parameters) == ["account", "customer", "period", "line"]


@pytest.mark.parametrize("version", [0, -1])
@pytest.mark.parametrize("operation", Operation)
def test_versions_start_at_one(operation: Operation, version: int) -> None:
    """There is no version 0."""
    with pytest.raises(InvariantViolation):
        key_for(operation, "subject", version)


def test_a_refund_is_never_re_keyed() -> None:
    """A refund request has one key, for good (trace T12)."""
    with pytest.raises(InvariantViolation):
        key_for(Operation.REFUND, "rr_1", 2)


def test_a_key_needs_a_subject_and_must_fit() -> None:
    """An empty subject and one that makes the key too long are refused."""
    for subject in ("", "x" * KEY_LENGTH_MAX):
        with pytest.raises(InvariantViolation):
            key_for(Operation.CREATE, subject, 1)


@given(parameter_sets)
def test_frozen_parameters_do_not_depend_on_order(parameters: dict[str, object]) -> None:
    """The same parameters in another order freeze to the same text, and the text reads back as they were."""
    turned = dict(reversed(parameters.items()))
    assert canonical_parameters(turned) == canonical_parameters(parameters)
    assert json.loads(canonical_parameters(parameters)) == parameters


@given(parameter_sets, parameter_sets, texts, texts)
def test_a_fingerprint_tells_bodies_and_paths_apart(
    first: dict[str, object], second: dict[str, object], path: str, other: str
) -> None:
    """One key, one body, one path: the fingerprint is the same exactly if path and frozen text are."""
    assume("\n" not in path + other)
    one, two = canonical_parameters(first), canonical_parameters(second)
    assert (fingerprint(path, one) == fingerprint(other, two)) == ((path, one) == (other, two))
