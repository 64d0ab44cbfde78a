"""Test tokens and test account numbers, and the payment method that each stands for.

docs.stripe.com/testing for cards, docs.stripe.com/payments/ach-direct-debit and /payments/sepa-debit for bank
accounts.
"""

from typing import Final

from deploy.stripe_sim.behaviours import BEHAVIOURS
from deploy.stripe_sim.errors import bad_request, missing_object
from deploy.stripe_sim.forms import Params, need_text, refuse_unknown, take_hash, take_text

US_ROUTING_NUMBER: Final = "110000000"
_US_ACCOUNTS: Final = {
    "000123456789": "pm_usBankAccount_success",
    "000111111113": "pm_usBankAccount_accountClosed",
    "000111111116": "pm_usBankAccount_noAccount",
    "000222222227": "pm_usBankAccount_insufficientFunds",
    "000333333335": "pm_usBankAccount_debitNotAuthorized",
    "000000000009": "pm_usBankAccount_processing",
}
_IBANS: Final = {
    "DE89370400440532013000": "pm_sepaDebit",
    "AT611904300234573201": "pm_sepaDebit",
    "FR1420041010050500013M02606": "pm_sepaDebit",
    "DE62370400440532013001": "pm_sepaDebit_failed",
    "AT861904300235473202": "pm_sepaDebit_failed",
}
_CARD: Final = frozenset({"token", "number", "exp_month", "exp_year", "cvc", "networks"})
_US: Final = frozenset({"account_holder_type", "account_number", "account_type", "routing_number"})
_SEPA: Final = frozenset({"iban"})


def find_test_method(kind: str, params: Params) -> str:
    """Return the documented id behind the details of a new payment method, or refuse them."""
    if kind == "card":
        return _find_card(take_hash(params, "card"))
    if kind == "us_bank_account":
        return _find_us_account(take_hash(params, "us_bank_account"))
    if kind == "sepa_debit":
        details = take_hash(params, "sepa_debit")
        refuse_unknown(details, _SEPA, inside="sepa_debit")
        return _look_up(_IBANS, need_text(details, "iban").replace(" ", ""), "sepa_debit[iban]")
    raise bad_request(f"The simulator has no payment methods of type {kind}.", param="type")


def _find_card(card: Params) -> str:
    refuse_unknown(card, _CARD, inside="card")
    if "number" in card:
        message = (
            "Sending credit card numbers directly to the Stripe API is generally unsafe. We suggest you use "
            "test tokens that map to the test card you are using, see https://stripe.com/docs/testing."
        )
        raise bad_request(message)
    token = take_text(card, "token")
    if token is None:
        raise bad_request(
            "Missing required param: card[token].", code="parameter_missing", param="card[token]"
        )
    name = token.removeprefix("tok_")
    for documented_id in (f"pm_card_{name}", f"pm_card_visa_{name}"):
        if token.startswith("tok_") and documented_id in BEHAVIOURS:
            return documented_id
    raise missing_object("token", token, param="card[token]", status=400)


def _find_us_account(account: Params) -> str:
    refuse_unknown(account, _US, inside="us_bank_account")
    if need_text(account, "routing_number") != US_ROUTING_NUMBER:
        raise bad_request(
            "You must use a test bank account number in test mode.",
            code="account_number_invalid",
            param="us_bank_account[routing_number]",
        )
    return _look_up(_US_ACCOUNTS, need_text(account, "account_number"), "us_bank_account[account_number]")


def _look_up(table: dict[str, str], number: str, param: str) -> str:
    if number not in table:
        message = "You must use a test bank account number in test mode."
        raise bad_request(message, code="account_number_invalid", param=param)
    return table[number]
