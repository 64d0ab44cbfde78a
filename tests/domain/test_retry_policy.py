from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from workflows.domain.errors import InvalidInput
from workflows.domain.retry_policy import (
    DAY_SECONDS,
    DEAD_ACCOUNTS,
    DEFAULT_POLICY,
    HARD_DECLINES,
    NEVER,
    OUTDATED_CARDS,
    RETRY_DAYS_MAX,
    Decline,
    Method,
    RetryPolicy,
    RetryRule,
)
from workflows.domain.window import WINDOW_SECONDS

delays = st.lists(st.integers(1, RETRY_DAYS_MAX), unique=True, max_size=10).map(
    lambda days: tuple(sorted(days))
)


@pytest.mark.parametrize("code", [*HARD_DECLINES, *DEAD_ACCOUNTS])
def test_hard_declines_are_never_tried_again(code: str) -> None:
    """Whatever the advice: an issuer that asks for a retry of a stolen card is not believed."""
    assert DEFAULT_POLICY.rule_for(Decline(code, "try_again_later")).retry_after_days == ()


@pytest.mark.parametrize(
    "decline", [Decline("generic_decline", "do_not_try_again"), Decline(None, None, "03")]
)
def test_advice_to_stop_ends(decline: Decline) -> None:
    """From the issuer or from the network, and whatever the code."""
    assert DEFAULT_POLICY.rule_for(decline) is NEVER


@pytest.mark.parametrize("code", OUTDATED_CARDS)
def test_what_is_on_file_wrongly_waits_for_another_card(code: str) -> None:
    """Time mends no expiry date."""
    assert DEFAULT_POLICY.rule_for(Decline(code)).payment_method is Method.REPLACED


@pytest.mark.parametrize(
    "code", ["insufficient_funds", "generic_decline", "do_not_honor", "a_code_of_tomorrow", None]
)
def test_all_others_are_tried_on_days_3_5_and_7(code: str | None) -> None:
    """Unknown codes too: Stripe adds some."""
    assert DEFAULT_POLICY.rule_for(Decline(code)).retry_after_days == (3, 5, 7)


def test_the_first_rule_that_fits_applies() -> None:
    """Order decides, so a policy can be read from top to bottom."""
    first, second = (
        RetryRule("first", (2,), decline_codes=("x",)),
        RetryRule("second", (4,), decline_codes=("x",)),
    )
    assert RetryPolicy(rules=(first, second)).rule_for(Decline("x")) is first


@given(delays)
def test_no_delay_is_inside_the_window(days: tuple[int, ...]) -> None:
    """Every retry is at least a window behind the decline and behind the retry before it."""
    times = [0, *RetryRule("any", days).retry_after_days]
    gaps = [(later - earlier) * DAY_SECONDS for earlier, later in pairwise(times)]
    assert all(gap >= WINDOW_SECONDS for gap in gaps)


@pytest.mark.parametrize("days", [(0,), (3, 3), (5, 3), (29,), tuple(range(1, 12)), (-1,)])
def test_delays_that_can_not_be_are_refused(days: tuple[int, ...]) -> None:
    """Inside the window, not rising, too late, or too many."""
    with pytest.raises(InvalidInput, match="rule 'any'"):
        RetryRule("any", days)


def test_two_rules_of_one_name_are_refused() -> None:
    """A recorded decision names its rule."""
    with pytest.raises(InvalidInput, match="same name"):
        RetryPolicy(rules=(RetryRule("otherwise", (1,)),))


def test_a_frozen_policy_is_read_as_it_was() -> None:
    """It travels with the run's request as JSON, and comes back equal."""
    adapter = TypeAdapter(RetryPolicy)
    assert adapter.validate_python(adapter.dump_python(DEFAULT_POLICY, mode="json")) == DEFAULT_POLICY
