"""What a run's standing lets its charges do."""

import pytest

from workflows.domain.mode import Mode, claims_of, mode_of
from workflows.domain.states import IN_FLIGHT, NOT_STARTED, State


@pytest.mark.parametrize(
    ("phase", "hold", "canceling", "mode"),
    [
        ("charging", None, False, Mode.NORMAL),
        ("settling", None, False, Mode.NORMAL),
        ("locked", None, False, Mode.HELD),
        ("planned", None, False, Mode.HELD),
        ("closed", None, False, Mode.HELD),
        ("failed", None, False, Mode.HELD),
        ("charging", "paused", False, Mode.HELD),
        ("settling", "breaker", False, Mode.HELD),
        ("charging", None, True, Mode.CANCELING),
        ("planned", None, True, Mode.CANCELING),
        ("charging", "paused", True, Mode.CANCELING),
    ],
)
def test_a_run_begins_something_new_only_while_nothing_stands_against_it(
    phase: str, hold: str | None, mode: Mode, *, canceling: bool
) -> None:
    """Charging or settling, not held, not being canceled; and a cancel outranks a hold."""
    assert mode_of(phase=phase, hold=hold, canceling=canceling) is mode


def test_a_held_run_claims_what_is_in_flight_alone() -> None:
    """Claiming what may not be begun would push what can settle out of a pass."""
    assert claims_of(Mode.HELD).states == IN_FLIGHT
    assert claims_of(Mode.NORMAL).states == NOT_STARTED | IN_FLIGHT
    assert not claims_of(Mode.HELD).before_due | claims_of(Mode.NORMAL).before_due


def test_a_cancel_waits_for_no_due_time_except_where_only_a_lookup_helps() -> None:
    """A create without an answer has to wait for its window: nobody knows yet what there is to cancel."""
    claims = claims_of(Mode.CANCELING)
    assert claims.states == NOT_STARTED | IN_FLIGHT
    assert claims.before_due == {State.PLANNED, State.PREPARED, State.CONFIRMING}
