"""Pages of what moved on an account's balance, and of its payouts."""

from dataclasses import dataclass

from workflows.domain.balance import BalanceTransaction, Payout


@dataclass(frozen=True, slots=True)
class BalancePage:
    """One page of balance transactions, newest first.

    `created` has every item by its id, and `transactions` those that belong to a PaymentIntent.
    """

    transactions: tuple[BalanceTransaction, ...]
    created: tuple[tuple[str, int], ...]
    complete: bool
    has_more: bool
    failure: str | None = None
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PayoutPage:
    """One page of payouts, newest first: `created` has every item, `payouts` those made automatically."""

    payouts: tuple[Payout, ...]
    created: tuple[tuple[str, int], ...]
    complete: bool
    has_more: bool
    failure: str | None = None
    retry_after_seconds: float | None = None
