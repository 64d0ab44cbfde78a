"""Which step comes first for a charge that is charged again, over every history and lookup there could be."""

# ruff: noqa: FBT001 - hypothesis passes arguments by name

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain.strategies import charge_ids, lookups
from workflows.domain.answer import Lookup, PaymentIntent
from workflows.domain.charge import Charge
from workflows.domain.errors import InvariantViolation
from workflows.domain.recovery import CANCELED_STATUS, PAID_STATUSES, CancelFirst, NotSettled, Settled
from workflows.domain.reopen import (
    CONFIRMABLE_STATUSES,
    FirstStep,
    KeyHistory,
    Reopening,
    decide_first_step,
    find_before_create,
    find_still_confirmable,
    rule_on_next_version,
)
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS, Permission

moments = st.floats(min_value=1, max_value=2**33)
histories = st.builds(
    KeyHistory,
    create_version=st.integers(1, 5),
    payment_intent=st.none() | st.just("pi_1"),
    payment_intent_canceled=st.booleans(),
    must_cancel=st.booleans(),
    newest_create_epoch_seconds=moments,
    newest_confirm_epoch_seconds=st.none() | moments,
)
CHARGE = Charge(
    charge_id="a" * 32, run_id="run", account="acct_1", customer="cus_1", period="2031-03", line="base",
    currency="eur", amount_minor=100, payment_method="pm_1", description=None, state=State.PLANNED,
    reason=None, fence=1, create_version=1, confirm_version=1, cancel_version=0, payment_intent="pi_1",
    latest_charge=None,
)  # fmt: skip


def test_what_was_never_sent_is_created_at_once() -> None:
    """No key, no window, no lookup."""
    history = KeyHistory(
        create_version=0, payment_intent=None, payment_intent_canceled=False, must_cancel=False,
        newest_create_epoch_seconds=None, newest_confirm_epoch_seconds=None,
    )  # fmt: skip
    first = decide_first_step(history)
    assert (first.step, first.not_before_epoch_seconds) == (FirstStep.CREATE, 0.0)
    with pytest.raises(InvariantViolation):
        decide_first_step(replace(history, payment_intent="pi_1"))


@given(histories)
def test_a_payment_intent_makes_way_only_once_it_is_canceled(history: KeyHistory) -> None:
    """While it can succeed the step is a confirm of it or its cancel, never a create beside it (I11)."""
    can_succeed = history.payment_intent is not None and not history.payment_intent_canceled
    step = decide_first_step(history).step
    if can_succeed:
        assert step is (FirstStep.CANCEL if history.must_cancel else FirstStep.CONFIRM_AGAIN)
    else:
        assert step is FirstStep.CREATE_AGAIN


@given(histories)
def test_every_next_version_waits_for_its_window(history: KeyHistory) -> None:
    """A confirm for the newest confirm key's, a create for the newest key of either kind (I4)."""
    first = decide_first_step(history)
    newest = [history.newest_confirm_epoch_seconds]
    if first.step is FirstStep.CREATE_AGAIN:
        newest.append(history.newest_create_epoch_seconds)
    if first.step is not FirstStep.CANCEL:
        assert all(first.not_before_epoch_seconds >= at + WINDOW_SECONDS for at in newest if at is not None)


@given(lookups, st.booleans())
def test_only_what_is_still_confirmable_is_confirmed(lookup: Lookup, was_handed_over: bool) -> None:
    """A lookup that lets the confirm go on showed the very PaymentIntent, open, and of the right amount."""
    finding = find_still_confirmable(lookup, CHARGE, was_handed_over=was_handed_over)
    shown = [intent for intent in lookup.payment_intents if intent.id == CHARGE.payment_intent]
    if isinstance(finding, NotSettled) and shown:
        intent = shown[0]
        assert intent.status in CONFIRMABLE_STATUSES | {"requires_action"}
        assert (intent.amount_minor, intent.currency, intent.customer) == (100, "eur", "cus_1")
    if shown and shown[0].status in PAID_STATUSES | {CANCELED_STATUS}:
        assert isinstance(finding, Settled)
        assert finding.state == {"processing": State.PROCESSING, "succeeded": State.SUCCEEDED}.get(
            shown[0].status, State.CANCELED
        )


@pytest.mark.parametrize(("was_handed_over", "goes_on"), [(True, True), (False, False)])
def test_a_customer_who_is_about_to_pay_is_left_alone(was_handed_over: bool, goes_on: bool) -> None:
    """`requires_action` is a customer at work, unless the charge waited for one who never came."""
    intent = PaymentIntent("pi_1", "requires_action", 100, "eur", 1, customer="cus_1")
    lookup = Lookup((intent,), complete=True, started_epoch_seconds=1.0, skew_seconds=0.0)
    finding = find_still_confirmable(lookup, CHARGE, was_handed_over=was_handed_over)
    assert isinstance(finding, NotSettled) is goes_on
    if isinstance(finding, Settled):
        assert finding.state is State.NEEDS_CUSTOMER


@given(lookups, charge_ids)
def test_a_create_comes_only_after_all_others_are_canceled(lookup: Lookup, charge_id: str) -> None:
    """Paid ones of the identity settle it, open ones have to be canceled first, the rest says nothing."""
    finding = find_before_create(lookup, charge_id=charge_id)
    ours = [intent for intent in lookup.payment_intents if intent.charge_id == charge_id]
    if any(intent.status in PAID_STATUSES for intent in ours):
        assert isinstance(finding, Settled)
    elif leftovers := [intent for intent in ours if intent.status != CANCELED_STATUS]:
        assert isinstance(finding, CancelFirst)
        assert sorted(finding.payment_intents, key=str) == sorted(leftovers, key=str)
    else:
        assert isinstance(finding, NotSettled)


@given(lookups, st.none() | moments)
def test_the_next_version_needs_a_complete_lookup_past_the_window(
    lookup: Lookup, newest: float | None
) -> None:
    """REKEY only if the lookup began past the window, proves what it shows, and the clocks agree (I4)."""
    ruling = rule_on_next_version(lookup, Reopening(FirstStep.CONFIRM_AGAIN, newest, "x"))
    assert ruling.permission in {Permission.WAIT, Permission.REKEY}
    if ruling.permission is Permission.REKEY:
        assert lookup.complete
        assert lookup.skew_seconds is not None
        assert abs(lookup.skew_seconds) <= 60
        assert newest is None or lookup.started_epoch_seconds - newest >= WINDOW_SECONDS
