import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.domain.answer import Lookup, PaymentIntent
from workflows.domain.follow_up import (
    WAITS_ON,
    End,
    FollowUp,
    Kind,
    Outcome,
    Wait,
    begin,
    cancel_first,
    find_later,
    go_on,
    look_again,
)
from workflows.domain.recovery import NotSettled, Settled
from workflows.domain.retry_policy import DAY_SECONDS as DAY
from workflows.domain.retry_policy import DEFAULT_POLICY, NOTHING_AFTERWARDS, Decline
from workflows.domain.states import SETTLED, State, is_legal

NOW = 1_000_000.0
SOFT, HARD = Decline("insufficient_funds"), Decline("stolen_card")


def follow_up(kind: Kind, **changes: float) -> FollowUp:
    """Return one that began now."""
    times = {"since": NOW, "due_at": NOW, "ends_at": NOW + 7 * DAY, **changes}
    return FollowUp(1, kind, 0, **times)


def due_days(found: Wait | End) -> float:
    """Return in how many days from now something is due."""
    assert isinstance(found, Wait), found
    return (found.due_at - NOW) / DAY


def test_a_soft_decline_waits_for_its_first_retry() -> None:
    """Three days from the decline, seven at most."""
    found = begin(DEFAULT_POLICY, State.DECLINED, SOFT, changed_at=NOW)
    assert isinstance(found, Wait)
    assert (found.kind, found.step, due_days(found)) == (Kind.RETRY, 0, 3)
    assert found.ends_at == NOW + 7 * DAY


def test_a_hard_decline_ends_at_once() -> None:
    """There is nothing to wait for, and the reason names rule and code."""
    found = begin(DEFAULT_POLICY, State.DECLINED, HARD, changed_at=NOW)
    assert isinstance(found, End)
    assert (found.outcome, "stolen_card" in found.reason) == (Outcome.NEVER_RETRIED, True)


@pytest.mark.parametrize(("step", "days"), [(0, 3), (1, 5), (2, 7)])
def test_retries_keep_their_days_from_the_first_decline(step: int, days: float) -> None:
    """However late the one before was: the n-th is counted from the first decline, not from the last."""
    late = NOW + (days - 1.5) * DAY
    found = go_on(
        DEFAULT_POLICY, follow_up(Kind.RETRY), State.DECLINED, SOFT, changed_at=late, now=late, step=step
    )
    assert due_days(found) == days


def test_a_retry_that_came_late_pushes_the_next_a_day_away() -> None:
    """Within a day of the newest decline Stripe would only repeat it."""
    late = NOW + 6.8 * DAY
    found = go_on(
        DEFAULT_POLICY, follow_up(Kind.RETRY), State.DECLINED, SOFT, changed_at=late, now=late, step=2
    )
    assert due_days(found) == pytest.approx(7.8)


def test_the_newest_decline_decides() -> None:
    """A soft decline that turns hard is not tried again."""
    found = go_on(
        DEFAULT_POLICY, follow_up(Kind.RETRY), State.DECLINED, HARD, changed_at=NOW, now=NOW, step=1
    )
    assert isinstance(found, End)


def test_a_debit_that_fails_goes_on_behind_the_step_that_began_it() -> None:
    """Two days after its failure, as the second retry is two days behind the first."""
    found = begin(DEFAULT_POLICY, State.DECLINED, SOFT, changed_at=NOW, step=1)
    assert due_days(found) == 2


@given(st.sampled_from([Kind.CUSTOMER, Kind.DEBIT]), st.floats(0, 40 * DAY))
def test_looks_are_a_day_apart_and_end(kind: Kind, later: float) -> None:
    """The next look is within a day and never past the end; at the end there is none."""
    now, ends_at = NOW + later, NOW + 23 * DAY
    found = look_again(kind, step=0, since=NOW, ends_at=ends_at, now=now)
    if now >= ends_at:
        assert isinstance(found, End)
    else:
        assert isinstance(found, Wait)
        assert now < found.due_at <= min(now + DAY, ends_at)


@given(st.sampled_from(sorted(SETTLED)), st.sampled_from([SOFT, HARD]), st.integers(0, 3))
def test_every_state_is_waited_on_or_ends(state: State, decline: Decline, step: int) -> None:
    """Whatever moves a charge, its follow-up knows what comes next."""
    for kind in Kind:
        found = go_on(DEFAULT_POLICY, follow_up(kind), state, decline, changed_at=NOW, now=NOW, step=step)
        if isinstance(found, Wait):
            assert WAITS_ON[found.kind] is state
        else:
            assert found.outcome in {*Outcome, *State}


@pytest.mark.parametrize("state", [State.DECLINED, State.NEEDS_CUSTOMER, State.PROCESSING])
def test_nothing_is_waited_for_where_the_policy_says_so(state: State) -> None:
    """For whoever follows up elsewhere."""
    assert isinstance(begin(NOTHING_AFTERWARDS, state, SOFT, changed_at=NOW), End)


def test_what_may_still_pay_is_canceled_first() -> None:
    """At once, since there is nothing else to wait for (I12)."""
    wait = cancel_first(End(Outcome.NEVER_RETRIED, "stolen"), changed_at=NOW)
    assert (wait.kind, due_days(wait)) == (Kind.RETRY, 0)


def lookup(status: str, **fields: str) -> Lookup:
    """Return a lookup that shows the charge's PaymentIntent."""
    intent = PaymentIntent("pi_1", status, 100, "usd", 0, **fields)  # type: ignore[arg-type]
    return Lookup((intent,), complete=True, started_epoch_seconds=0, skew_seconds=0)


@pytest.mark.parametrize(
    ("state", "status", "found"),
    [
        (State.NEEDS_CUSTOMER, "succeeded", State.SUCCEEDED),
        (State.NEEDS_CUSTOMER, "processing", State.PROCESSING),
        (State.NEEDS_CUSTOMER, "canceled", State.CANCELED),
        (State.NEEDS_CUSTOMER, "requires_action", None),
        (State.NEEDS_CUSTOMER, "requires_payment_method", None),
        (State.NEEDS_CUSTOMER, "requires_confirmation", None),
        (State.NEEDS_CUSTOMER, "requires_capture", State.REVIEW),
        (State.PROCESSING, "succeeded", State.SUCCEEDED),
        (State.PROCESSING, "processing", None),
        (State.PROCESSING, "requires_payment_method", State.DECLINED),
        (State.PROCESSING, "canceled", State.CANCELED),
        (State.PROCESSING, "requires_action", State.NEEDS_CUSTOMER),
    ],
)
def test_what_stripe_says_later(state: State, status: str, found: State | None) -> None:
    """A customer may come back after a failure; a debit that is no longer on its way has ended."""
    finding = find_later(lookup(status), payment_intent_id="pi_1", state=state)
    if found is None:
        assert isinstance(finding, NotSettled)
    else:
        assert isinstance(finding, Settled)
        assert finding.state is found
        assert is_legal(state, found)


def test_another_payment_intent_says_nothing() -> None:
    """Only the charge's own counts."""
    finding = find_later(lookup("succeeded"), payment_intent_id="pi_2", state=State.PROCESSING)
    assert isinstance(finding, NotSettled)
