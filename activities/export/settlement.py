"""What Stripe's balance shows of a run: read page by page into a spool, before the ledger's moment is taken.

No transaction of the ledger is open meanwhile. What is paid between the two is in the ledger and not in the
spool; it is counted as not shown, like everything that Stripe does not show yet.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from activities.accounts import AccountParts, Accounts
from activities.counted_limiter import CountedLimiter
from activities.export.cells import to_major
from activities.ledger.database import refused_without_rights
from activities.ledger.export import SettlementWindow
from activities.ledger.settlement_spool import SettlementSpool
from activities.stripe_pages import Unreadable, read_balance, read_payouts
from activities.vault import READING
from workflows.contracts import RunKey
from workflows.domain.balance import BalanceTransaction
from workflows.domain.errors import RefusedToStart
from workflows.domain.states import State

MARGIN_SECONDS = 86_400  # the two clocks may differ, and what a late answer is about is older than it
# A monthly payout of the slowest method comes within this of the transaction; later ones have nothing of it.
PAYOUT_SECONDS_MAX = 45 * 86_400
PAYMENTS = frozenset({"charge", "payment"})
_NO_RIGHTS = "its role may not take turns at the account's limits, which a worker's may"


@dataclass
class Reading:
    """How far Stripe was read: `transactions` and `payouts` are None where all was, else why not."""

    transactions: str | None = None
    payouts: str | None = None
    requests: int = 0

    @property
    def gaps(self) -> list[str]:
        """What is missing, in words."""
        gaps = {"settlement": self.transactions, "payouts in settlement": self.payouts}
        return [f"{what}: {why}" for what, why in gaps.items() if why is not None]


async def read_settlement(
    accounts: Accounts, run: RunKey, window: SettlementWindow, spool: SettlementSpool
) -> Reading:
    """Read everything that moved on the account's balance in the window, and which payout has it.

    Nothing is raised where Stripe, the proxy or the limiter refuses: what was read stays, and the rest is
    said.
    """
    reading = Reading()
    try:
        parts = await accounts.of(run, READING)
    except RefusedToStart as refused:
        reading.transactions = reading.payouts = str(refused)
        return reading
    limiter = CountedLimiter(parts.limiter)
    since = int(window.since.timestamp()) - MARGIN_SECONDS
    until = int(window.until.timestamp()) + MARGIN_SECONDS
    try:
        with refused_without_rights(_NO_RIGHTS):
            await _read_transactions(parts, limiter, spool, since, until)
    except (Unreadable, RefusedToStart) as failure:
        reading.transactions, reading.payouts = str(failure), "not asked for"
    else:
        try:
            await _read_payouts(parts, limiter, spool, since, until + PAYOUT_SECONDS_MAX)
        except Unreadable as failure:
            reading.payouts = str(failure)
    reading.requests = limiter.requests
    return reading


async def _read_transactions(
    parts: AccountParts, limiter: CountedLimiter, spool: SettlementSpool, since: int, until: int
) -> None:
    async for page in read_balance(
        parts.gateway.balance,
        parts.account,
        since_epoch_seconds=since,
        until_epoch_seconds=until,
        limiter=limiter,
    ):
        spool.keep(page.transactions)


async def _read_payouts(
    parts: AccountParts, limiter: CountedLimiter, spool: SettlementSpool, since: int, until: int
) -> None:
    stripe = parts.gateway.balance
    if not len(spool):
        return
    async for page in read_payouts(
        stripe, parts.account, since_epoch_seconds=since, until_epoch_seconds=until, limiter=limiter
    ):
        for payout in page.payouts:
            async for paid in read_balance(stripe, parts.account, payout=payout.payout_id, limiter=limiter):
                ids = [transaction_id for transaction_id, _ in paid.created]
                spool.pay_out(ids, payout.payout_id, payout.arrival_epoch_seconds)


def settle(line: Mapping[str, Any], spool: SettlementSpool, reading: Reading) -> Iterator[dict[str, Any]]:
    """Yield the rows of settlement.csv for one charge; one of a paid charge without a transaction, too."""
    pays = False
    for transaction, payout, arrival in spool.find(line["payment_intent"], line["charge_id"]):
        standing = _standing(line, transaction)
        pays = pays or standing in {"settled", "other_amount"}
        yield {**_row(line, transaction), **_paid_out(payout, arrival), "standing": standing}
    if not pays and line["state"] == State.SUCCEEDED:
        missing = "not_shown" if reading.transactions is None else "not_read"
        yield {**_EMPTY, **line, "standing": missing}


def _standing(line: Mapping[str, Any], transaction: BalanceTransaction) -> str:
    if transaction.payment_intent != line["payment_intent"]:
        return "other_payment_intent"
    if transaction.type not in PAYMENTS:
        return "returned"
    same = transaction.currency == line["currency"]
    return "other_amount" if same and transaction.gross_minor != line["amount_minor"] else "settled"


def _row(line: Mapping[str, Any], transaction: BalanceTransaction) -> dict[str, Any]:
    currency = transaction.currency
    return {
        **line,
        "balance_transaction": transaction.transaction_id,
        "type": transaction.type,
        "reporting_category": transaction.reporting_category,
        "source": transaction.source,
        "source_payment_intent": transaction.payment_intent,
        "created_at": _time(transaction.created_epoch_seconds),
        "available_at": _time(transaction.available_epoch_seconds),
        "status": transaction.status,
        "settlement_currency": currency,
        "gross_minor": transaction.gross_minor,
        "fee_minor": transaction.fee_minor,
        "net_minor": transaction.net_minor,
        "gross": to_major(transaction.gross_minor, currency),
        "fee": to_major(transaction.fee_minor, currency),
        "net": to_major(transaction.net_minor, currency),
        "exchange_rate": transaction.exchange_rate,
    }


def _paid_out(payout: str | None, arrival: int | None) -> dict[str, Any]:
    return {"payout": payout, "payout_arrival_at": None if arrival is None else _time(arrival)}


def _time(epoch_seconds: int) -> datetime:
    return datetime.fromtimestamp(epoch_seconds, tz=UTC)


_EMPTY: Mapping[str, None] = dict.fromkeys(
    (
        "balance_transaction", "type", "reporting_category", "source", "source_payment_intent", "created_at",
        "available_at", "status", "settlement_currency", "gross_minor", "fee_minor", "net_minor", "gross",
        "fee", "net",
        "exchange_rate", "payout", "payout_arrival_at",
    )
)  # fmt: skip
