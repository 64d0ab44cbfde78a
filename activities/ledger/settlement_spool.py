"""Stripe's balance transactions of an account's window, in a file until the charges that they pay are known.

There can be millions, of this run and of everything else that the account does. They go to a small database
in a file of the process's own and not to the ledger's: whoever exports may have no right to write there.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path

from workflows.domain.balance import BalanceTransaction

_TABLE = """
CREATE TABLE transactions (
    transaction_id TEXT PRIMARY KEY, payment_intent TEXT NOT NULL, charge_id TEXT, type TEXT NOT NULL,
    reporting_category TEXT, source TEXT NOT NULL, created INTEGER NOT NULL, available INTEGER NOT NULL,
    status TEXT NOT NULL, currency TEXT NOT NULL, gross INTEGER NOT NULL, fee INTEGER NOT NULL,
    net INTEGER NOT NULL, exchange_rate REAL, payout TEXT, payout_arrival INTEGER
) WITHOUT ROWID
"""
_INDEXES = (
    "CREATE INDEX by_payment_intent ON transactions (payment_intent)",
    "CREATE INDEX by_charge ON transactions (charge_id) WHERE charge_id IS NOT NULL",
)
_KEEP = "INSERT OR REPLACE INTO transactions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)"
_PAY_OUT = "UPDATE transactions SET payout = ?, payout_arrival = ? WHERE transaction_id = ?"
_FIND = """
SELECT * FROM transactions
 WHERE payment_intent = ?1
    OR payment_intent IN (SELECT o.payment_intent FROM transactions o WHERE o.charge_id = ?2)
 ORDER BY created, transaction_id
"""
_COUNT = "SELECT count(*) FROM transactions"

Kept = tuple[BalanceTransaction, str | None, int | None]


class SettlementSpool:
    """Balance transactions by PaymentIntent."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def keep(self, transactions: Iterable[BalanceTransaction]) -> None:
        """Keep transactions; one that is there already is kept as it is now."""
        self._connection.executemany(_KEEP, map(astuple, transactions))

    def pay_out(self, transaction_ids: Sequence[str], payout: str, arrival_epoch_seconds: int) -> None:
        """Say which payout has some transactions; those that were not kept are none of ours."""
        rows = [(payout, arrival_epoch_seconds, transaction_id) for transaction_id in transaction_ids]
        self._connection.executemany(_PAY_OUT, rows)

    def find(self, payment_intent: str | None, charge_id: str) -> list[Kept]:
        """Return the transactions of a charge, oldest first, each with its payout and when that arrives.

        They are those of its PaymentIntent, and of any other that its identity stands on.
        """
        rows = self._connection.execute(_FIND, (payment_intent, charge_id))
        return [(BalanceTransaction(*row[:-2]), row[-2], row[-1]) for row in rows]

    def __len__(self) -> int:
        """Return how many transactions are kept."""
        (count,) = self._connection.execute(_COUNT).fetchone()
        return int(count)


@contextmanager
def open_spool(path: Path) -> Iterator[SettlementSpool]:
    """Yield an empty spool in a new file, which is gone afterwards."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        # Nobody ever reads it again: neither journal nor disk are waited for.
        for setting in (
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "PRAGMA temp_store = MEMORY",
        ):
            connection.execute(setting)
        connection.execute(_TABLE)
        for index in _INDEXES:
            connection.execute(index)
        connection.execute("BEGIN")
        yield SettlementSpool(connection)
    finally:
        connection.close()
        path.unlink(missing_ok=True)
