from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain import strategies
from workflows.domain.answer import METADATA_CHARGE, PaymentIntent
from workflows.domain.charge import Charge
from workflows.domain.errors import InvariantViolation
from workflows.domain.merge import About, Alarm, Apply, Nothing, about, is_known, merge
from workflows.domain.states import PAID_OR_PAYING, State, is_legal

S = State
IDENTITY = "a" * 32
OWN = "pi_1"
CHARGE = Charge(
    charge_id=IDENTITY,
    run_id="billing-run/acct_sim/2031-03",
    account="acct_sim",
    customer="cus_1",
    period="2031-03",
    line="base",
    currency="usd",
    amount_minor=100,
    payment_method="pm_1",
    description=None,
    state=S.CONFIRMING,
    reason=None,
    fence=1,
    create_version=1,
    confirm_version=1,
    cancel_version=0,
    payment_intent=OWN,
    latest_charge=None,
)
INTENT = PaymentIntent(
    id=OWN,
    status="succeeded",
    amount_minor=100,
    currency="usd",
    created_epoch_seconds=0,
    customer="cus_1",
    metadata={METADATA_CHARGE: IDENTITY},
)
WITHOUT_INTENT = frozenset({S.PLANNED, S.CREATING, S.REFUSED, S.SKIPPED})


def merged(state: State, status: str, **changes: object) -> Nothing | Apply | Alarm:
    """Merge a PaymentIntent in `status` into a charge in `state`; changes are the PaymentIntent's."""
    return merge(replace(CHARGE, state=state), replace(INTENT, status=status, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("state", sorted(set(State) - {S.SUCCEEDED, S.SKIPPED}))
def test_money_wins_over_every_state(state: State) -> None:
    """Whatever we had concluded: the charge's own PaymentIntent succeeded, so the customer was charged."""
    result = merged(state, "succeeded")
    assert isinstance(result, Apply)
    assert result.state is S.SUCCEEDED
    assert result.alarm is (state in {S.REFUSED, S.CANCELED, S.REVIEW, S.PLANNED})


@pytest.mark.parametrize("status", strategies.KNOWN_STATUSES)
def test_nothing_at_stripe_takes_a_success_back(status: str) -> None:
    """Invariant I8, incident I13: `succeeded` is left by no status, so no late failure overwrites it."""
    assert not isinstance(merged(S.SUCCEEDED, status), Apply)


@pytest.mark.parametrize("status", ["requires_payment_method", "requires_action", "requires_confirmation"])
@pytest.mark.parametrize("state", sorted(set(State) - {S.PROCESSING}))
def test_an_open_payment_intent_decides_nothing_but_for_a_debit(state: State, status: str) -> None:
    """Invariant I14, trace T9: `requires_*` may be about an earlier confirm while ours is about to pay."""
    assert isinstance(merged(state, status), Nothing)


def test_a_debit_that_failed_is_declined() -> None:
    """Incident I15: days after `processing` Stripe says that nothing came, and why."""
    result = merged(S.PROCESSING, "requires_payment_method", last_decline_code="insufficient_funds")
    assert isinstance(result, Apply)
    assert (result.state, result.alarm) == (S.DECLINED, False)
    assert "insufficient_funds" in result.reason


@pytest.mark.parametrize("state", sorted(set(State) - {S.CANCELED, S.SUCCEEDED, S.PLANNED, S.SKIPPED}))
def test_a_canceled_payment_intent_of_its_own_cancels_the_charge(state: State) -> None:
    """It can never succeed, whoever canceled it."""
    result = merged(state, "canceled")
    assert isinstance(result, Apply)
    assert result.state is S.CANCELED


def test_a_late_cancellation_does_not_end_a_charge_that_a_later_run_took_over() -> None:
    """The event of the cancel that made way for the next PaymentIntent may come days later."""
    assert isinstance(merged(S.PLANNED, "canceled"), Nothing)


@pytest.mark.parametrize("status", ["canceled", "requires_payment_method", "requires_confirmation"])
@pytest.mark.parametrize("own", [None, "pi_2"])
def test_another_payment_intent_that_is_not_paid_says_nothing(status: str, own: str | None) -> None:
    """A canceled or open one of an earlier version is for the sweep, and no word about this charge."""
    row = replace(CHARGE, state=S.CREATING if own is None else S.CONFIRMING, payment_intent=own)
    assert isinstance(merge(row, replace(INTENT, status=status)), Nothing)


@pytest.mark.parametrize("state", sorted(PAID_OR_PAYING))
@pytest.mark.parametrize("status", ["succeeded", "processing"])
def test_a_second_payment_is_an_alarm(state: State, status: str) -> None:
    """Two PaymentIntents of one identity that pay are a duplicate, and the charge stays as it is."""
    result = merge(replace(CHARGE, state=state, payment_intent="pi_2"), replace(INTENT, status=status))
    assert isinstance(result, Alarm)
    assert result.decision == "duplicate"


@pytest.mark.parametrize("state", sorted(set(State) - PAID_OR_PAYING - {S.SKIPPED, S.REVIEW}))
def test_a_payment_by_another_payment_intent_stops_the_charge(state: State) -> None:
    """The customer has paid, though not through the row's own: nothing more may be confirmed for it."""
    result = merge(replace(CHARGE, state=state, payment_intent="pi_2"), INTENT)
    assert isinstance(result, Apply)
    assert result.state in {S.REVIEW, S.SUCCEEDED}
    assert result.alarm
    assert is_legal(state, result.state)


@pytest.mark.parametrize("state", sorted(WITHOUT_INTENT - {S.SKIPPED}))
def test_a_payment_that_nobody_knew_of_is_taken_in(state: State) -> None:
    """A create whose answer was lost, rolled forward and paid: the row takes its PaymentIntent (I11)."""
    result = merge(replace(CHARGE, state=state, payment_intent=None), INTENT)
    assert isinstance(result, Apply)
    assert (result.state, result.payment_intent.id) == (S.SUCCEEDED, OWN)


@pytest.mark.parametrize("changes", [{"amount_minor": 101}, {"currency": "eur"}])
@pytest.mark.parametrize("state", [S.CONFIRMING, S.DECLINED, S.PROCESSING])
def test_another_amount_is_for_people(state: State, changes: dict[str, object]) -> None:
    """Money that is not what was owed is never counted as it."""
    result = merged(state, "succeeded", **changes)
    assert isinstance(result, Apply)
    assert (result.state, result.alarm) == (S.REVIEW, True)


def test_a_paid_line_that_was_to_be_skipped_is_an_alarm() -> None:
    """`skipped` has no PaymentIntent and no way to one, so people are told."""
    result = merge(replace(CHARGE, state=S.SKIPPED, payment_intent=None), INTENT)
    assert isinstance(result, Alarm)
    assert result.decision == "paid_at_stripe"


def test_a_stranger_is_never_merged() -> None:
    """A PaymentIntent of another identity says nothing about this charge."""
    with pytest.raises(InvariantViolation):
        merge(CHARGE, replace(INTENT, metadata={METADATA_CHARGE: "b" * 32}))


@given(st.sampled_from(State), st.sampled_from((None, "pi_1", "pi_2")), strategies.payment_intents)
def test_what_is_applied_is_legal_and_changes_something(
    state: State, own: str | None, intent: PaymentIntent
) -> None:
    """For any row and any PaymentIntent of its identity: a legal step to another state, or none."""
    row = replace(CHARGE, state=state, payment_intent=own)
    result = merge(row, replace(intent, metadata={METADATA_CHARGE: IDENTITY}))
    if isinstance(result, Apply):
        assert is_legal(state, result.state)
        assert result.state is not State.CANCELED or own == intent.id


@pytest.mark.parametrize(
    ("event_type", "expected"),
    [
        ("payment_intent.succeeded", About.PAYMENT),
        ("payment_intent.created", About.NOTHING),
        ("charge.failed", About.PAYMENT),
        ("charge.refunded", About.REFUNDS),
        ("charge.refund.updated", About.REFUNDS),
        ("refund.failed", About.REFUNDS),
        ("charge.dispute.closed", About.DISPUTES),
        ("customer.updated", About.NOTHING),
    ],
)
def test_the_type_says_what_to_look_at(event_type: str, expected: About) -> None:
    """Payments, refunds, disputes, or nothing that concerns a charge."""
    assert about(event_type) is expected


def test_what_the_ledger_has_is_not_asked_for() -> None:
    """A success that is recorded, of the row's own PaymentIntent: no request is spent on its events."""
    paid = replace(CHARGE, state=S.SUCCEEDED)
    assert is_known(paid, OWN, "payment_intent.succeeded")
    assert is_known(paid, OWN, "payment_intent.payment_failed")
    assert is_known(replace(CHARGE, state=S.PROCESSING), OWN, "charge.pending")
    assert not is_known(replace(CHARGE, state=S.PROCESSING), OWN, "charge.succeeded")
    assert not is_known(paid, "pi_2", "payment_intent.succeeded")
    assert not is_known(paid, OWN, "charge.refunded")
