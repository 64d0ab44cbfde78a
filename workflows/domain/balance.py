"""What moves on an account's balance at Stripe. Amounts are in minor units of the balance's currency."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BalanceTransaction:
    """One movement, and what is behind it.

    `charge_id` is the identity in the metadata of a charge, where there is one. `exchange_rate` is from
    the charge's currency, where that is another.
    """

    transaction_id: str
    payment_intent: str
    charge_id: str | None
    type: str
    reporting_category: str | None
    source: str
    created_epoch_seconds: int
    available_epoch_seconds: int
    status: str
    currency: str
    gross_minor: int
    fee_minor: int
    net_minor: int
    exchange_rate: float | None


@dataclass(frozen=True, slots=True)
class Payout:
    """A payout that Stripe made by itself: only of such does it say what they consist of."""

    payout_id: str
    created_epoch_seconds: int
    arrival_epoch_seconds: int
