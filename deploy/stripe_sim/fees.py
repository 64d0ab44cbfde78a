"""What Stripe keeps of a payment: a simple table, by kind of payment method.

The rates are those of Stripe's public US price list for cards and ACH and of its euro list for SEPA
(stripe.com/pricing); an account's own contract differs. A fee is not given back with a refund
(docs.stripe.com/refunds), and a dispute costs its own. Fixed parts are so many minor units in every currency.
"""

from typing import Final

BASIS_POINTS: Final = 10_000
CARD_BASIS_POINTS: Final = 290
CARD_FIXED: Final = 30
US_DEBIT_BASIS_POINTS: Final = 80
US_DEBIT_MAX: Final = 500
SEPA_FIXED: Final = 35
DISPUTE_FEE: Final = 1_500


def charge_fee(kind: str, amount: int) -> int:
    """Return the fee for a successful payment of this kind, in minor units of its currency."""
    if kind == "us_bank_account":
        return min(US_DEBIT_MAX, _share(amount, US_DEBIT_BASIS_POINTS))
    if kind == "sepa_debit":
        return min(amount, SEPA_FIXED)
    return min(amount, _share(amount, CARD_BASIS_POINTS) + CARD_FIXED)


def _share(amount: int, basis_points: int) -> int:
    return (amount * basis_points + BASIS_POINTS // 2) // BASIS_POINTS
