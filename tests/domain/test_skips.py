"""Which amounts are charged: nothing never is, and small ones by policy."""

import pytest

from workflows.domain.money import RULES
from workflows.domain.skips import AmountRule, SkipReason

POLICIES = (None, SkipReason.BELOW_MINIMUM_CARRIED_FORWARD, SkipReason.BELOW_MINIMUM_WAIVED)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_currency_is_charged_from_its_minimum_on(policy: SkipReason | None) -> None:
    """At the documented minimum an amount is charged, below it goes by policy, and 0 is never charged."""
    reason_for = AmountRule(policy).reason_for
    for currency, rule in RULES.items():
        assert reason_for(0, currency) is SkipReason.ZERO_AMOUNT
        assert reason_for(rule.minimum_minor or 1, currency) is None
        if rule.minimum_minor is not None:
            assert reason_for(rule.minimum_minor - 1, currency) is policy
