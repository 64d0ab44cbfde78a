import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.domain.cap import cap_for, fits
from workflows.domain.errors import InvalidInput, InvariantViolation
from workflows.domain.money import RULES, check_amount


def test_the_cap_is_the_total_and_a_tenth_per_currency() -> None:
    """Each currency has its own cap, and a currency without a total has none."""
    assert cap_for({"usd": 100_000, "jpy": 1000}) == {"usd": 110_000, "jpy": 1100}
    assert cap_for({}) == {}
    assert cap_for({"usd": 0}) == {"usd": 0}


def test_the_cap_is_rounded_down_to_what_the_currency_can_be_charged() -> None:
    """A tenth that is no whole step is left away."""
    assert cap_for({"usd": 1999}) == {"usd": 2198}
    assert cap_for({"isk": 500}) == {"isk": 500}
    assert cap_for({"kwd": 5120}) == {"kwd": 5630}


def test_exactly_the_cap_fits_and_one_more_does_not() -> None:
    """The cap is the most that may move, itself included."""
    assert fits(110, 100, 10)
    assert not fits(110, 100, 11)
    assert fits(0, 0, 0)


def test_two_totals_for_one_currency_or_an_unknown_one_are_refused() -> None:
    """A cap can't be had by spelling a currency twice or inventing one."""
    with pytest.raises(InvariantViolation):
        cap_for({"usd": 1, "USD": 1})
    with pytest.raises(InvalidInput):
        cap_for({"xxx": 1})
    with pytest.raises(InvariantViolation):
        cap_for({"usd": -1})
    with pytest.raises(InvariantViolation):
        fits(100, -50, 120)


@given(st.dictionaries(st.sampled_from(sorted(RULES)), st.integers(0, 10**9)))
def test_an_approved_total_always_fits_and_never_more_than_a_tenth_above(steps: dict[str, int]) -> None:
    """What was approved fits its cap, and the cap is chargeable and at most a tenth above."""
    totals = {currency: count * RULES[currency].step_minor for currency, count in steps.items()}
    caps = cap_for(totals)
    assert caps.keys() == totals.keys()
    for currency, total in totals.items():
        assert fits(caps[currency], 0, total)
        assert caps[currency] * 10 <= total * 11
        check_amount(min(caps[currency], 10**11), currency)
