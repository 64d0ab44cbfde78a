import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.domain.canary import judge_canary
from workflows.domain.errors import InvariantViolation


@pytest.mark.parametrize(
    ("lines", "declined", "otherwise", "unknown", "percent_max", "goes_on"),
    [
        (10, 0, 0, 0, None, False),
        (10, 0, 0, 0, 0.0, True),
        (10, 1, 0, 0, 0.0, False),
        (10, 1, 0, 0, 10.0, True),
        (10, 1, 1, 0, 10.0, False),
        (10, 0, 2, 0, 10.0, False),
        (10, 0, 0, 1, 100.0, False),
        (10, 10, 0, 0, 100.0, True),
        (0, 0, 0, 0, 0.0, True),
        (0, 0, 0, 0, None, False),
        (3, 1, 0, 0, 33.3, False),
        (3, 1, 0, 0, 33.4, True),
    ],
)
def test_a_canary_goes_on_by_its_rule(
    lines: int, declined: int, otherwise: int, unknown: int, percent_max: float | None, *, goes_on: bool
) -> None:
    """Without a rule somebody looks; with one every line has ended and at most that share of them unpaid."""
    verdict = judge_canary(
        lines=lines, declined=declined, not_paid_otherwise=otherwise, unknown=unknown,
        declined_percent_max=percent_max,
    )  # fmt: skip
    assert verdict.goes_on is goes_on
    assert f"canary of {lines} lines" in verdict.reason


@given(st.integers(0, 500), st.integers(0, 500), st.integers(1, 500), st.none() | st.floats(0, 100))
def test_nothing_unknown_ever_goes_on(
    paid: int, declined: int, unknown: int, percent_max: float | None
) -> None:
    """An outcome that nobody knows is no evidence, whatever the rule."""
    verdict = judge_canary(
        lines=paid + declined + unknown, declined=declined, not_paid_otherwise=0, unknown=unknown,
        declined_percent_max=percent_max,
    )  # fmt: skip
    assert not verdict.goes_on


def test_counts_that_can_not_be_are_a_broken_promise() -> None:
    """More lines that ended badly than there are would judge nothing that exists."""
    with pytest.raises(InvariantViolation):
        judge_canary(lines=1, declined=1, not_paid_otherwise=1, unknown=0, declined_percent_max=None)
