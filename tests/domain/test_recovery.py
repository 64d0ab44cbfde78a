"""What a lookup means for a charge in flight, over every lookup there could be."""

# ruff: noqa: FBT001 - hypothesis passes arguments by name

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.domain.strategies import charge_ids, create_keys, lookups, payment_intents
from workflows.domain.answer import METADATA_CHARGE, METADATA_CREATE_KEY, Lookup, PaymentIntent
from workflows.domain.recovery import (
    CANCELED_STATUS,
    PAID_STATUSES,
    Adopt,
    CancelFirst,
    ExpectedIntent,
    NotSettled,
    Settled,
    find_canceled,
    find_confirmed,
    find_created,
)
from workflows.domain.states import IN_FLIGHT, NOT_STARTED, State
from workflows.domain.verdict import CONCLUSIVE_STATUSES

expectations = st.builds(
    ExpectedIntent,
    charge_id=charge_ids,
    create_key=create_keys,
    amount_minor=st.sampled_from((100, 200)),
    currency=st.sampled_from(("eur", "usd")),
    customer=st.sampled_from(("cus_1", "cus_2")),
)
cancel_intents = st.sets(st.sampled_from(("pi_1", "pi_2", "pi_3")))
latest_charges = st.sampled_from((None, "ch_1", "ch_2"))

CHARGE, KEY_V1, KEY_V2 = "a" * 32, "create_x_v1", "create_x_v2"
EXPECTED = ExpectedIntent(CHARGE, KEY_V2, 100, "eur", "cus_1")
OURS = PaymentIntent(
    "pi_1",
    "requires_confirmation",
    100,
    "eur",
    1_900_000_000,
    customer="cus_1",
    metadata={METADATA_CHARGE: CHARGE, METADATA_CREATE_KEY: KEY_V2},
)


def shown(*intents: PaymentIntent, complete: bool = True) -> Lookup:
    """Return a lookup that showed these."""
    return Lookup(intents, complete, started_epoch_seconds=1_900_000_100.0, skew_seconds=0.0)


@given(lookups, expectations, cancel_intents, st.booleans())
def test_money_found_outranks_everything(
    lookup: Lookup, expected: ExpectedIntent, canceled: set[str], window_passed: bool
) -> None:
    """A PaymentIntent of the identity that is paid or processing settles the charge, whatever else is."""
    finding = find_created(lookup, expected, cancel_intended=canceled, window_passed=window_passed)
    paid = [
        intent
        for intent in lookup.payment_intents
        if intent.charge_id == expected.charge_id and intent.status in PAID_STATUSES
    ]
    assert isinstance(finding, Settled) == bool(paid)
    if isinstance(finding, Settled):
        assert finding.payment_intent in paid
        assert finding.state is CONCLUSIVE_STATUSES[finding.payment_intent.status]
        assert ("DUPLICATE" in finding.reason) == (len(paid) > 1)


@given(lookups, expectations, cancel_intents, st.booleans())
def test_only_our_own_is_adopted(
    lookup: Lookup, expected: ExpectedIntent, canceled: set[str], window_passed: bool
) -> None:
    """What is adopted has our identity, key and parameters, is open, and was never meant to be canceled."""
    finding = find_created(lookup, expected, cancel_intended=canceled, window_passed=window_passed)
    if isinstance(finding, Adopt):
        intent = finding.payment_intent
        assert intent.charge_id == expected.charge_id
        assert intent.create_key == expected.create_key
        assert (intent.amount_minor, intent.currency, intent.customer) == (
            expected.amount_minor,
            expected.currency,
            expected.customer,
        )
        assert intent.status != CANCELED_STATUS
        assert intent.id not in canceled


@given(lookups, expectations, cancel_intents, st.booleans())
def test_leftovers_are_canceled_only_on_whole_evidence(
    lookup: Lookup, expected: ExpectedIntent, canceled: set[str], window_passed: bool
) -> None:
    """What must be canceled first is ours and unpaid, seen in a complete lookup past the window (I11)."""
    finding = find_created(lookup, expected, cancel_intended=canceled, window_passed=window_passed)
    if isinstance(finding, CancelFirst):
        assert window_passed
        assert lookup.complete
        for intent in finding.payment_intents:
            assert intent.charge_id == expected.charge_id
            assert intent.status not in PAID_STATUSES | {CANCELED_STATUS}


@given(lookups, expectations, cancel_intents)
def test_past_the_window_a_new_create_finds_everything_canceled(
    lookup: Lookup, expected: ExpectedIntent, canceled: set[str]
) -> None:
    """A complete lookup lets a new create through only if all PaymentIntents of the identity are canceled."""
    whole = replace(lookup, complete=True)
    finding = find_created(whole, expected, cancel_intended=canceled, window_passed=True)
    if isinstance(finding, NotSettled):
        ours = [intent for intent in lookup.payment_intents if intent.charge_id == expected.charge_id]
        assert all(intent.status == CANCELED_STATUS for intent in ours)


def test_a_late_booking_of_an_earlier_version_is_not_adopted() -> None:
    """T5: v1 books late, after a takeover made v2 with a new amount: v1's PaymentIntent is canceled first."""
    late = replace(OURS, amount_minor=50, metadata={METADATA_CHARGE: CHARGE, METADATA_CREATE_KEY: KEY_V1})
    assert isinstance(
        find_created(shown(late), EXPECTED, cancel_intended=(), window_passed=False), NotSettled
    )
    finding = find_created(shown(late), EXPECTED, cancel_intended=(), window_passed=True)
    assert finding == CancelFirst((late,), finding.reason)


def test_the_create_that_was_lost_is_found_by_its_key() -> None:
    """The PaymentIntent with the current key and parameters is adopted, among others' and older ones."""
    other = replace(OURS, id="pi_2", metadata={})
    older = replace(OURS, id="pi_3", metadata={METADATA_CHARGE: CHARGE, METADATA_CREATE_KEY: KEY_V1})
    finding = find_created(shown(other, older, OURS), EXPECTED, cancel_intended=(), window_passed=False)
    assert isinstance(finding, Adopt)
    assert finding.payment_intent is OURS


def test_of_two_paid_ones_the_finding_does_not_depend_on_their_order() -> None:
    """A duplicate is named as one, and the same PaymentIntent stands for it in either order."""
    first = replace(OURS, status="succeeded")
    second = replace(OURS, id="pi_2", status="processing", created_epoch_seconds=1)
    findings = [
        find_created(shown(*order), EXPECTED, cancel_intended=(), window_passed=False)
        for order in ((first, second), (second, first))
    ]
    assert findings[0] == findings[1]
    assert isinstance(findings[0], Settled)
    assert findings[0].payment_intent.id == "pi_1"


@given(lookups, latest_charges, st.booleans(), st.booleans())
def test_only_the_row_s_own_payment_intent_counts(
    lookup: Lookup, before: str | None, window_passed: bool, key_answered: bool
) -> None:
    """A confirm is settled by its own PaymentIntent, and never back into a state in flight or not started."""
    finding = find_confirmed(
        lookup,
        payment_intent_id="pi_1",
        latest_charge_before=before,
        window_passed=window_passed,
        key_answered=key_answered,
    )
    assert isinstance(finding, Settled | NotSettled)
    if isinstance(finding, Settled):
        assert finding.payment_intent.id == "pi_1"
        assert finding.state not in IN_FLIGHT | NOT_STARTED


@given(payment_intents, latest_charges, st.booleans(), st.booleans())
def test_succeeded_processing_and_canceled_always_apply(
    intent: PaymentIntent, before: str | None, window_passed: bool, key_answered: bool
) -> None:
    """What Stripe says is final of the row's own PaymentIntent needs no other evidence (I14)."""
    for status, state in CONCLUSIVE_STATUSES.items():
        finding = find_confirmed(
            shown(replace(intent, status=status), complete=False),
            payment_intent_id=intent.id,
            latest_charge_before=before,
            window_passed=window_passed,
            key_answered=key_answered,
        )
        assert isinstance(finding, Settled)
        assert finding.state is state


@given(payment_intents, latest_charges)
def test_requires_anything_decides_nothing_while_the_confirm_may_run(
    intent: PaymentIntent, before: str | None
) -> None:
    """Inside the window, with the newest key unanswered, only a final status settles (I14)."""
    finding = find_confirmed(
        shown(intent),
        payment_intent_id=intent.id,
        latest_charge_before=before,
        window_passed=False,
        key_answered=False,
    )
    assert isinstance(finding, Settled) == (intent.status in CONCLUSIVE_STATUSES)


@given(payment_intents, st.booleans())
def test_an_old_decline_is_not_this_confirm_s(intent: PaymentIntent, window_passed: bool) -> None:
    """T9: with no newer failed charge and no replay of the key, a decline is an earlier confirm's."""
    finding = find_confirmed(
        shown(replace(intent, status="requires_payment_method")),
        payment_intent_id=intent.id,
        latest_charge_before=intent.latest_charge,
        window_passed=window_passed,
        key_answered=False,
    )
    assert isinstance(finding, NotSettled)


def test_a_replayed_confirm_makes_the_decline_its_own() -> None:
    """Once Stripe has replayed the key's answer, the confirm has run: its decline counts."""
    finding = find_confirmed(
        shown(replace(OURS, status="requires_payment_method", latest_charge="ch_1")),
        payment_intent_id="pi_1",
        latest_charge_before="ch_1",
        window_passed=False,
        key_answered=True,
    )
    assert isinstance(finding, Settled)
    assert finding.state is State.DECLINED


def test_a_newer_failed_charge_is_this_confirm_s_decline() -> None:
    """A failed charge that was not there before the confirm is its decline, or its call for the customer."""
    declined = replace(
        OURS, status="requires_payment_method", latest_charge="ch_2", last_error_code="card_declined"
    )
    asked = replace(declined, last_error_code="authentication_required")
    for intent, state in ((declined, State.DECLINED), (asked, State.NEEDS_CUSTOMER)):
        finding = find_confirmed(
            shown(intent),
            payment_intent_id="pi_1",
            latest_charge_before="ch_1",
            window_passed=True,
            key_answered=False,
        )
        assert isinstance(finding, Settled)
        assert finding.state is state


@given(lookups)
def test_a_cancel_goes_by_the_status_of_its_payment_intent(lookup: Lookup) -> None:
    """T1: a cancel is settled by what the PaymentIntent is: canceled, or paid in the meantime."""
    finding = find_canceled(lookup, payment_intent_id="pi_1")
    conclusive = [
        intent
        for intent in lookup.payment_intents
        if intent.id == "pi_1" and intent.status in CONCLUSIVE_STATUSES
    ]
    assert isinstance(finding, Settled) == bool(conclusive)
    if isinstance(finding, Settled):
        assert finding.payment_intent in conclusive
        assert finding.state is CONCLUSIVE_STATUSES[finding.payment_intent.status]


def test_not_found_is_no_evidence() -> None:
    """An empty lookup settles nothing, complete or not."""
    for complete in (True, False):
        nothing = shown(complete=complete)
        assert isinstance(find_canceled(nothing, payment_intent_id="pi_1"), NotSettled)
        assert isinstance(
            find_confirmed(
                nothing,
                payment_intent_id="pi_1",
                latest_charge_before=None,
                window_passed=True,
                key_answered=True,
            ),
            NotSettled,
        )
