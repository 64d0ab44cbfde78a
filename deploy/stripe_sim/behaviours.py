"""What each documented test payment method does (docs.stripe.com/testing), in one table.

A payment method seeded under `<documented id>_<suffix>` behaves like the longest documented id in front; any
other `pm_...` is a good card.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

DAY_SECONDS: Final = 86_400

Outcome = Literal["succeed", "decline", "process"]
Authentication = Literal["never", "on_session", "always"]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a payment method answers a confirm.

    `authentication` says when the bank asks for its customer: never, only on session, or always.
    `declines_first` is the number of confirms that fail before one succeeds; zero means that `outcome` holds
    every time. `dispute` is the reason of the dispute that follows a success ("inquiry" opens one that takes
    no money yet); `refund` says what becomes of a refund.
    """

    outcome: Outcome = "succeed"
    authentication: Authentication = "never"
    code: str = "card_declined"
    decline_code: str | None = None
    message: str = "Your card was declined."
    advice_code: str | None = None
    network_decline_code: str | None = None
    attachable: bool = True
    declines_first: int = 0
    kind: str = "card"
    brand: str = "visa"
    last4: str = "4242"
    country: str = "US"
    settle_seconds: int = 0
    dispute: str | None = None
    refund: Literal["succeeds", "fails later", "pends"] = "succeeds"


GOOD: Final = Behaviour()


def _decline(
    decline_code: str,
    message: str = "Your card was declined.",
    *,
    code: str = "card_declined",
    last4: str = "0002",
    advice: str = "try_again_later",
    network: str | None = None,
    attachable: bool = False,
) -> Behaviour:
    return Behaviour(
        outcome="decline",
        code=code,
        decline_code=decline_code,
        message=message,
        advice_code=advice,
        network_decline_code=network,
        last4=last4,
        attachable=attachable,
    )


_DECLINES: Final = {
    "chargeDeclined": _decline("generic_decline", network="01"),
    "chargeDeclinedInsufficientFunds": _decline(
        "insufficient_funds", "Your card has insufficient funds.", last4="9995", network="51"
    ),
    "chargeDeclinedLostCard": _decline("lost_card", last4="9987", advice="do_not_try_again", network="41"),
    "chargeDeclinedStolenCard": _decline(
        "stolen_card", last4="9979", advice="do_not_try_again", network="43"
    ),
    "chargeDeclinedFraudulent": _decline("fraudulent", last4="0019", advice="do_not_try_again"),
    "chargeDeclinedVelocityLimitExceeded": _decline("card_velocity_exceeded", last4="6975", network="65"),
    "chargeDeclinedExpiredCard": _decline(
        "expired_card",
        "Your card has expired.",
        code="expired_card",
        last4="0069",
        advice="confirm_card_data",
        network="54",
    ),
    "chargeDeclinedIncorrectCvc": _decline(
        "incorrect_cvc",
        "Your card's security code is incorrect.",
        code="incorrect_cvc",
        last4="0127",
        advice="confirm_card_data",
    ),
    "chargeDeclinedProcessingError": _decline(
        "processing_error",
        "An error occurred while processing your card. Try again in a little bit.",
        code="processing_error",
        last4="0119",
    ),
}

_COUNTRIES: Final = "us ar br ca cl co mx at be ch de es fr gb ie it nl pl se au hk in jp my nz sg"
_GOOD_CARDS: Final = {
    **dict.fromkeys(_COUNTRIES.split(), ("visa", "4242")),
    "visa": ("visa", "4242"),
    "visa_debit": ("visa", "5556"),
    "mastercard": ("mastercard", "4444"),
    "mastercard_debit": ("mastercard", "8210"),
    "mastercard_prepaid": ("mastercard", "5100"),
    "amex": ("amex", "0005"),
    "discover": ("discover", "1117"),
    "diners": ("diners", "0004"),
    "jcb": ("jcb", "0505"),
    "unionpay": ("unionpay", "0005"),
    "bypassPending": ("visa", "0077"),
    "riskLevelElevated": ("visa", "9235"),
    "avsFail": ("visa", "0010"),
    "cvcCheckFail": ("visa", "0101"),
    "threeDSecureOptional": ("visa", "3055"),
    "threeDSecureNotSupported": ("amex", "0005"),
}


_RECOVERING: Final = Behaviour(decline_code="insufficient_funds", message="Your card has insufficient funds.")


def _us_debit(decline_code: str | None = None, *, days: int = 4) -> Behaviour:
    return Behaviour(
        outcome="process",
        kind="us_bank_account",
        code="payment_method_provider_decline" if decline_code is None else decline_code,
        decline_code=decline_code,
        message="The bank did not pay the debit.",
        last4="6789",
        settle_seconds=days * DAY_SECONDS,
        refund="pends",
    )


def _sepa_debit(decline_code: str | None = None, *, days: int = 5) -> Behaviour:
    return Behaviour(
        outcome="process",
        kind="sepa_debit",
        code="charge_failed" if decline_code is None else decline_code,
        decline_code=decline_code,
        message="The bank did not pay the debit.",
        last4="3201",
        country="DE",
        settle_seconds=days * DAY_SECONDS,
        refund="pends",
    )


BEHAVIOURS: Final[dict[str, Behaviour]] = {
    **{
        f"pm_card_{name}": Behaviour(brand=brand, last4=last4) for name, (brand, last4) in _GOOD_CARDS.items()
    },
    "pm_card_createDispute": Behaviour(last4="0259", dispute="fraudulent"),
    "pm_card_createDisputeProductNotReceived": Behaviour(last4="2685", dispute="product_not_received"),
    "pm_card_createDisputeInquiry": Behaviour(last4="1976", dispute="inquiry"),
    "pm_card_refundFail": Behaviour(last4="5126", refund="fails later"),
    "pm_card_pendingRefund": Behaviour(last4="7726", refund="pends"),
    **{f"pm_card_visa_{name}": behaviour for name, behaviour in _DECLINES.items()},
    **{f"pm_card_{name}": behaviour for name, behaviour in _DECLINES.items()},
    "pm_card_chargeCustomerFail": _decline("generic_decline", last4="0341", network="01", attachable=True),
    "pm_card_radarBlock": _decline("fraudulent", last4="0019", advice="do_not_try_again"),
    "pm_card_authenticationRequired": Behaviour(authentication="always", last4="3184"),
    "pm_card_authenticationRequiredOnSetup": Behaviour(authentication="on_session", last4="3155"),
    "pm_card_authenticationRequiredSetupForOffSession": Behaviour(authentication="on_session", last4="0446"),
    "pm_card_authenticationRequiredChargeDeclinedInsufficientFunds": Behaviour(
        outcome="decline",
        authentication="always",
        decline_code="insufficient_funds",
        message="Your card has insufficient funds.",
        advice_code="try_again_later",
        last4="3178",
    ),
    "pm_card_threeDSecure2Required": Behaviour(authentication="always", last4="3220"),
    "pm_card_threeDSecureRequired": Behaviour(authentication="always", last4="3063"),
    "pm_card_threeDSecureRequiredChargeDeclined": Behaviour(
        outcome="decline", authentication="always", decline_code="generic_decline", last4="1629"
    ),
    # Not Stripe's: cards that come to their senses, counted per payment method.
    "pm_card_declineOnceThenSucceed": replace(_RECOVERING, declines_first=1),
    "pm_card_declineTwiceThenSucceed": replace(_RECOVERING, declines_first=2),
    "pm_usBankAccount": _us_debit(),
    "pm_usBankAccount_success": _us_debit(),
    "pm_usBankAccount_processing": _us_debit(days=36_500),
    "pm_usBankAccount_insufficientFunds": _us_debit("insufficient_funds"),
    "pm_usBankAccount_accountClosed": _us_debit("account_closed"),
    "pm_usBankAccount_accountFrozen": _us_debit("bank_account_restricted"),
    "pm_usBankAccount_noAccount": _us_debit("no_account"),
    "pm_usBankAccount_debitNotAuthorized": _us_debit("debit_not_authorized"),
    "pm_sepaDebit": _sepa_debit(),
    "pm_sepaDebit_failed": _sepa_debit("insufficient_funds"),
    "pm_success_de": _sepa_debit(),
    "pm_failed_de": _sepa_debit("insufficient_funds"),
}


def find_documented_id(payment_method_id: str) -> str | None:
    """Return the longest documented id that this one is, or starts with before an underscore."""
    candidate = payment_method_id
    while candidate not in BEHAVIOURS:
        candidate, separator, _ = candidate.rpartition("_")
        if not separator:
            return None
    return candidate


def behaviour_of(documented_id: str | None) -> Behaviour:
    """Return what a payment method of this documented id does; a good card if there is none."""
    return GOOD if documented_id is None else BEHAVIOURS.get(documented_id, GOOD)
