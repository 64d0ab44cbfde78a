"""Which declines are tried again, when and with what: a policy is data, and this module reads it.

Rules are looked at in order and the first one that names a code of the decline applies. Stripe's decline and
advice codes: https://docs.stripe.com/declines/codes and https://docs.stripe.com/declines/card; the hard
declines, which Stripe's own retries never touch: https://docs.stripe.com/billing/revenue-recovery/smart-retries.
Network advice codes are Mastercard's merchant advice codes, as Stripe passes them on.
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from workflows.domain.errors import InvalidInput

DAY_SECONDS = 86_400.0
RETRIES_MAX = 10  # in 30 days networks fine from the 15th or 20th on, and other runs may retry as well
# A run holds its charges this long at most: 14 days of a debit, 28 of retries, 30 for the customer. Its vault
# key has to outlast that.
RETRY_DAYS_MAX = 28
CUSTOMER_DAYS_MAX = 30
DEBIT_DAYS_MAX = 30


class Method(StrEnum):
    """Which payment method a retry uses."""

    RE_RESOLVE = "re-resolve"  # the customer's default of that day: cards get replaced
    SAME = "same"  # the one that was declined
    REPLACED = "replaced"  # the default of that day, and only if it is another one


@dataclass(frozen=True, slots=True)
class Decline:
    """What is known of the newest decline: Stripe's code, and what issuer and network advise."""

    code: str | None = None
    advice: str | None = None
    network_advice: str | None = None

    def __str__(self) -> str:
        """Return the codes that there are, for reasons."""
        advice = f", advice {self.advice}" if self.advice else ""
        network = f", network advice {self.network_advice}" if self.network_advice else ""
        return f"{self.code or 'declined'}{advice}{network}"


@dataclass(frozen=True, slots=True)
class RetryRule:
    """What becomes of some declines. No delay means that they are never tried again."""

    name: str
    retry_after_days: tuple[int, ...] = ()
    """Days from the first decline, rising, each at least one later than the one before."""
    payment_method: Method = Method.RE_RESOLVE
    decline_codes: tuple[str, ...] = ()
    advice_codes: tuple[str, ...] = ()
    network_advice_codes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse delays that would run into the window of the key before. Raises InvalidInput."""
        days = self.retry_after_days
        if len(days) > RETRIES_MAX:
            raise InvalidInput(f"rule {self.name!r}: at most {RETRIES_MAX} retries, not {len(days)}")
        if any(day < 1 or day > RETRY_DAYS_MAX for day in days):
            # Stripe answers with the stored decline for 24 hours, so an earlier retry asks nothing.
            raise InvalidInput(f"rule {self.name!r}: retry_after_days must be 1 to {RETRY_DAYS_MAX}")
        if any(later <= earlier for earlier, later in pairwise(days)):
            raise InvalidInput(f"rule {self.name!r}: retry_after_days must rise, by a day at least")

    def fits(self, decline: Decline) -> bool:
        """Return whether the rule names a code of this decline."""
        return (
            decline.code in self.decline_codes
            or decline.advice in self.advice_codes
            or decline.network_advice in self.network_advice_codes
        )


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What a run does, over days, about what is not paid at the end of its charging. Frozen with the run."""

    rules: tuple[RetryRule, ...] = ()
    otherwise: RetryRule = RetryRule("otherwise", (3, 5, 7))
    customer_days: int = 23
    """How long a customer is waited for; 0 is not at all, and nobody is told. With retries until day 7 this
    ends on day 30, before most customers are billed again and are asked for two payments at once."""
    debit_days: int = 14
    """How long a debit is looked at, 0 not at all: banks take 3 to 5 working days, some twice that."""

    def __post_init__(self) -> None:
        """Refuse waits that are too long, and names that are used twice. Raises InvalidInput."""
        for name, days, most in (
            ("customer_days", self.customer_days, CUSTOMER_DAYS_MAX),
            ("debit_days", self.debit_days, DEBIT_DAYS_MAX),
        ):
            if not 0 <= days <= most:
                raise InvalidInput(f"{name} must be 0 to {most}, not {days}")
        names = [rule.name for rule in (*self.rules, self.otherwise)]
        if len(set(names)) < len(names):
            raise InvalidInput("two rules have the same name: a decision could not be told from another")

    def rule_for(self, decline: Decline) -> RetryRule:
        """Return the first rule that names a code of the decline, or the one for all others."""
        return next((rule for rule in self.rules if rule.fits(decline)), self.otherwise)


# Declined for good by the issuer, or for a reason that time does not mend.
HARD_DECLINES = (
    "stolen_card",
    "lost_card",
    "pickup_card",
    "fraudulent",
    "merchant_blacklist",
    "highest_risk_level",
    "restricted_card",
    "security_violation",
    "incorrect_number",
    "invalid_account",
    "revocation_of_authorization",
    "revocation_of_all_authorizations",
    "stop_payment_order",
    "transaction_not_allowed",
    "not_permitted",
    "card_not_supported",
    "currency_not_supported",
    "duplicate_transaction",
    "testmode_decline",
)
# The same for a bank account that is debited.
DEAD_ACCOUNTS = (
    "account_closed",
    "no_account",
    "invalid_account_number",
    "bank_account_restricted",
    "bank_ownership_changed",
    "debit_not_authorized",
)
# What is on file is wrong or too old: only another card can help.
OUTDATED_CARDS = (
    "expired_card",
    "incorrect_cvc",
    "invalid_cvc",
    "incorrect_zip",
    "incorrect_address",
    "invalid_expiry_month",
    "invalid_expiry_year",
    "new_account_information_available",
)
NEVER = RetryRule(
    "never",
    decline_codes=(*HARD_DECLINES, *DEAD_ACCOUNTS),
    advice_codes=("do_not_try_again",),
    network_advice_codes=("03", "21"),
)
ONLY_REPLACED = RetryRule(
    "only another card",
    (3, 5, 7),
    Method.REPLACED,
    decline_codes=OUTDATED_CARDS,
    advice_codes=("confirm_card_data",),
    network_advice_codes=("01",),
)
NETWORK_SAYS_LATER = RetryRule(
    "the network says later",
    (10, 14),
    network_advice_codes=("27", "28", "29", "30"),  # after 4, 6, 8 or 10 days
)
PASSING = RetryRule(
    "a passing trouble",
    (1, 3, 5),
    decline_codes=("processing_error", "issuer_not_available", "reenter_transaction", "try_again_later"),
)
DEFAULT_POLICY = RetryPolicy(rules=(NEVER, ONLY_REPLACED, NETWORK_SAYS_LATER, PASSING))
# For whoever does all that elsewhere: the run closes with what its charging came to.
NOTHING_AFTERWARDS = RetryPolicy(otherwise=RetryRule("otherwise"), customer_days=0, debit_days=0)
