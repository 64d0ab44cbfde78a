"""The window rule: exact at its boundaries, and never more permissive than its evidence."""

# ruff: noqa: FBT001 - hypothesis passes arguments by name

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.domain.errors import InvariantViolation
from workflows.domain.window import (
    SAFETY_MARGIN_SECONDS,
    SKEW_SECONDS_MAX,
    WINDOW_SECONDS,
    Permission,
    rule,
)

RESEND, WAIT, REKEY = Permission.RESEND, Permission.WAIT, Permission.REKEY


def at(hours: int, minutes: int, seconds: float = 0.0) -> float:
    """Return an age in seconds."""
    return hours * 3600 + minutes * 60 + seconds


ages = st.floats(min_value=0, max_value=10 * WINDOW_SECONDS)
skews = st.floats(min_value=-SKEW_SECONDS_MAX, max_value=SKEW_SECONDS_MAX)


@pytest.mark.parametrize(
    ("age_seconds", "expected"),
    [
        (0, RESEND),
        (at(23, 44), RESEND),
        (at(23, 44, 59), RESEND),
        (at(23, 44, 59.999), RESEND),
        (at(23, 45), WAIT),
        (at(23, 46), WAIT),
        (at(23, 59, 59), WAIT),
        (at(23, 59, 59.999), WAIT),
        (at(24, 0), REKEY),
        (at(24, 0, 1), REKEY),
        (at(72, 0), REKEY),
    ],
)
def test_a_fresh_lookup_opens_each_boundary_exactly(age_seconds: float, expected: Permission) -> None:
    """With a complete lookup made just now: resend below 23:45, wait below 24:00, re-key from 24:00 on."""
    ruling = rule(
        age_seconds=age_seconds, lookup_age_seconds=age_seconds, skew_seconds=0, stored_failure=False
    )
    assert ruling.permission is expected


@pytest.mark.parametrize("age_seconds", [0, at(23, 44), at(23, 45), at(23, 59, 59.999), at(24, 0), at(72, 0)])
def test_without_a_complete_lookup_nothing_is_permitted(age_seconds: float) -> None:
    """Before Stripe was asked, at any age, the charge waits."""
    ruling = rule(age_seconds=age_seconds, lookup_age_seconds=None, skew_seconds=0, stored_failure=False)
    assert ruling.permission is WAIT


@pytest.mark.parametrize("age_seconds", [0, at(23, 44), at(23, 46), at(24, 0), at(72, 0)])
@pytest.mark.parametrize("skew_seconds", [-90.0, -60.001, 60.001, 90.0])
def test_a_clock_off_by_more_than_a_minute_stops_everything(age_seconds: float, skew_seconds: float) -> None:
    """Above a minute of skew, either way, the charge waits with an alarm."""
    ruling = rule(
        age_seconds=age_seconds,
        lookup_age_seconds=age_seconds,
        skew_seconds=skew_seconds,
        stored_failure=False,
    )
    assert ruling.permission is WAIT
    assert ruling.alarm


@pytest.mark.parametrize("skew_seconds", [-60.0, 60.0])
def test_a_minute_of_skew_is_still_good(skew_seconds: float) -> None:
    """Exactly a minute off does not stop anything."""
    ruling = rule(
        age_seconds=at(24, 0), lookup_age_seconds=at(24, 0), skew_seconds=skew_seconds, stored_failure=False
    )
    assert ruling.permission is REKEY


def test_an_unknown_skew_stops_everything() -> None:
    """A lookup without a Date header is no ground for sending."""
    ruling = rule(
        age_seconds=at(30, 0), lookup_age_seconds=at(30, 0), skew_seconds=None, stored_failure=False
    )
    assert ruling.permission is WAIT


@given(ages, ages, skews, st.booleans())
def test_a_new_version_needs_the_window_and_a_lookup_after_it(
    age_seconds: float, other_seconds: float, skew_seconds: float, stored_failure: bool
) -> None:
    """Re-keying is permitted exactly if the lookup began at least 24 hours after the first send (I4)."""
    lookup_age_seconds, age_seconds = sorted((age_seconds, other_seconds))
    ruling = rule(
        age_seconds=age_seconds,
        lookup_age_seconds=lookup_age_seconds,
        skew_seconds=skew_seconds,
        stored_failure=stored_failure,
    )
    assert (ruling.permission is REKEY) == (lookup_age_seconds >= WINDOW_SECONDS)


@given(ages, skews, st.booleans())
def test_nothing_is_resent_inside_the_margin_or_after(
    age_seconds: float, skew_seconds: float, stored_failure: bool
) -> None:
    """A key is resent only below window minus margin, and never to hear a stored failure again (I5)."""
    ruling = rule(
        age_seconds=age_seconds,
        lookup_age_seconds=age_seconds,
        skew_seconds=skew_seconds,
        stored_failure=stored_failure,
    )
    below = age_seconds < WINDOW_SECONDS - SAFETY_MARGIN_SECONDS
    assert (ruling.permission is RESEND) == (below and not stored_failure)


@given(ages, ages, skews, st.booleans())
def test_permissions_come_in_one_order(
    first_seconds: float, second_seconds: float, skew_seconds: float, stored_failure: bool
) -> None:
    """As a key ages, it is resent, then waits, then gives way to a new version; never backwards."""
    order = {RESEND: 0, WAIT: 1, REKEY: 2}
    younger, older = sorted((first_seconds, second_seconds))
    ranks = [
        order[
            rule(
                age_seconds=age,
                lookup_age_seconds=age,
                skew_seconds=skew_seconds,
                stored_failure=stored_failure,
            ).permission
        ]
        for age in (younger, older)
    ]
    assert ranks == sorted(ranks)


@given(ages, skews, st.booleans())
def test_waiting_as_long_as_told_leads_to_the_window_s_end(
    age_seconds: float, skew_seconds: float, stored_failure: bool
) -> None:
    """Where the window makes a charge wait, the wait ends where the window does."""
    ruling = rule(
        age_seconds=age_seconds,
        lookup_age_seconds=age_seconds,
        skew_seconds=skew_seconds,
        stored_failure=stored_failure,
    )
    assert ruling.wait_seconds >= 0
    if ruling.permission is WAIT:
        assert age_seconds + ruling.wait_seconds == pytest.approx(WINDOW_SECONDS)


def test_a_lookup_from_before_the_window_s_end_is_repeated() -> None:
    """A lookup begun at 23:59:59.999 can have missed what landed just after: look again at once."""
    ruling = rule(
        age_seconds=at(24, 0), lookup_age_seconds=at(23, 59, 59.999), skew_seconds=0, stored_failure=False
    )
    assert ruling.permission is WAIT
    assert ruling.wait_seconds == 0


def test_a_lookup_from_the_future_is_a_bug() -> None:
    """A lookup can't have begun after now."""
    with pytest.raises(InvariantViolation):
        rule(age_seconds=1.0, lookup_age_seconds=2.0, skew_seconds=0, stored_failure=False)
