"""Why a line of a source is not charged: one stored reason each."""

from enum import StrEnum

from workflows.domain.money import RULES


class SkipReason(StrEnum):
    """Every reason that planning can give."""

    ZERO_AMOUNT = "zero_amount"
    BELOW_MINIMUM_CARRIED_FORWARD = "below_minimum_carried_forward"  # still owed: a later bill has to say so
    BELOW_MINIMUM_WAIVED = "below_minimum_waived"
    NO_PAYMENT_METHOD = "no_payment_method"
    SEVERAL_PAYMENT_METHODS = "several_payment_methods"
    CUSTOMER_DELETED = "customer_deleted"
    CUSTOMER_MISSING = "customer_missing"
    # Another run of the period has the line, and keeps it: the detail names the run and the line's state.
    ALREADY_CHARGED = "already_charged"  # paid, or on its way
    IN_ANOTHER_RUN = "in_another_run"  # that run is still at it
    WAITING_FOR_RETRY = "waiting_for_retry"
    WAITING_FOR_CUSTOMER = "waiting_for_customer"
    IN_REVIEW = "in_review"  # people have to look at it first
    UNDETERMINED = "undetermined"  # a request for it may still be running
    CURRENCY_UNSUPPORTED = "currency_unsupported"
    CAN_NOT_BE_BILLED = "can_not_be_billed"  # the detail says what is wrong with the row


KEPT_BY_ANOTHER_RUN = frozenset(
    {
        SkipReason.ALREADY_CHARGED,
        SkipReason.IN_ANOTHER_RUN,
        SkipReason.WAITING_FOR_RETRY,
        SkipReason.WAITING_FOR_CUSTOMER,
        SkipReason.IN_REVIEW,
        SkipReason.UNDETERMINED,
    }
)


class AmountRule:
    """Which amounts are not charged. `below_minimum` None charges those below Stripe's minimum all the same.

    The minimum depends on the currency that an account settles in, so a currency without a documented one, or
    an account that settles in another, may refuse more or less than this (`money.minimum_minor`).
    """

    def __init__(self, below_minimum: SkipReason | None) -> None:
        self._below_minimum = below_minimum
        skips_small = below_minimum is not None
        # From here on an amount is charged: 1 at least, since nothing is not charged under any policy.
        self._charged_from_minor = {
            currency: (rule.minimum_minor or 1) if skips_small else 1 for currency, rule in RULES.items()
        }

    def reason_for(self, amount_minor: int, currency: str) -> SkipReason | None:
        """Return why an amount (minor units, 0 or more) is not charged, or None where it is."""
        if amount_minor >= self._charged_from_minor[currency]:
            return None
        return SkipReason.ZERO_AMOUNT if amount_minor == 0 else self._below_minimum
