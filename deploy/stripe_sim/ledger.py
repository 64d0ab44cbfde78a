"""The balance of one account: one entry per movement of money, with its fee, never changed."""

from array import array
from dataclasses import dataclass
from typing import Any, Final

from deploy.stripe_sim.log import Log
from deploy.stripe_sim.numbering import make_numbered_id, read_number

PREFIX: Final = "txn"
DAY_SECONDS: Final = 86_400
KINDS: Final = (
    "charge",
    "payment",
    "refund",
    "payment_refund",
    "refund_failure",
    "payment_failure_refund",
    "adjustment",
)
PENDING_DAYS: Final = {"charge": 2, "payment": 5}


@dataclass(frozen=True, slots=True)
class Entry:
    """One balance transaction, in minor units; `source` is the charge, refund or dispute behind it."""

    number: int
    id: str
    kind: str
    created: int
    amount: int
    fee: int
    currency: str
    source: str

    @property
    def available_on(self) -> int:
        """Return the second from which the money can be paid out."""
        return self.created + PENDING_DAYS.get(self.kind, 0) * DAY_SECONDS


class Ledger:
    """All balance transactions of an account, by number."""

    def __init__(self, account_id: str, *, log: Log, seed: int) -> None:
        self.account_id = account_id
        self._log = log
        self._seed = seed
        self._kinds = array("B")
        self._created = array("q")
        self._amounts = array("q")
        self._fees = array("q")
        self._currencies: list[str] = []
        self._sources: list[str] = []

    def __len__(self) -> int:
        return len(self._created)

    def enter(self, kind: str, *, at: float, amount: int, fee: int, currency: str, source: str) -> str:
        """Write down a movement and return the id of its balance transaction."""
        values = (KINDS.index(kind), int(at), amount, fee, currency, source)
        self._log.append("balance", self.account_id, values)
        self.restore(values)
        return self.id_of(len(self) - 1)

    def restore(self, values: Any) -> None:
        """Take an entry from the log."""
        kind, created, amount, fee, currency, source = values
        self._kinds.append(kind)
        self._created.append(created)
        self._amounts.append(amount)
        self._fees.append(fee)
        self._currencies.append(currency)
        self._sources.append(source)

    def id_of(self, number: int) -> str:
        """Return the id of an entry."""
        return make_numbered_id(PREFIX, self.account_id, number, seed=self._seed)

    def find(self, transaction_id: str) -> Entry | None:
        """Return an entry by its id, or None."""
        number = read_number(PREFIX, self.account_id, transaction_id, seed=self._seed)
        return self.read(number) if number is not None and number < len(self) else None

    def read(self, number: int) -> Entry:
        """Return an entry."""
        return Entry(
            number,
            self.id_of(number),
            KINDS[self._kinds[number]],
            self._created[number],
            self._amounts[number],
            self._fees[number],
            self._currencies[number],
            self._sources[number],
        )
