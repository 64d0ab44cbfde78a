"""The balance of one account: one entry per movement of money, with its fee, never changed."""

from array import array
from bisect import bisect_right
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
WAIT_SECONDS_MAX: Final = max(PENDING_DAYS.values()) * DAY_SECONDS


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
        # False once an entry is older than the one before it.
        self.monotone = True
        self._log = log
        self._seed = seed
        self.created = array("q")
        self._addresses = array("Q")
        self._nets: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.created)

    def enter(self, kind: str, *, at: float, amount: int, fee: int, currency: str, source: str) -> str:
        """Write down a movement and return the id of its balance transaction."""
        values = (KINDS.index(kind), int(at), amount, fee, currency, source)
        self.restore(self._log.append("balance", self.account_id, values), values)
        return self.id_of(len(self) - 1)

    def restore(self, address: int, values: Any) -> None:
        """Take an entry from the log."""
        _, created, amount, fee, currency, _ = values
        self._nets[currency] = self._nets.get(currency, 0) + amount - fee
        if self.created and self.created[-1] > created:
            self.monotone = False
        self.created.append(created)
        self._addresses.append(address)

    def id_of(self, number: int) -> str:
        """Return the id of an entry."""
        return make_numbered_id(PREFIX, self.account_id, number, seed=self._seed)

    def add_up(self, now: float) -> tuple[dict[str, int], dict[str, int]]:
        """Return the net sums per currency: what is available at `now`, and what is pending."""
        first = bisect_right(self.created, now - WAIT_SECONDS_MAX) if self.monotone else 0
        pending: dict[str, int] = {}
        for number in range(first, len(self)):
            entry = self.read(number)
            if entry.available_on > now:
                pending[entry.currency] = pending.get(entry.currency, 0) + entry.amount - entry.fee
        return {name: net - pending.get(name, 0) for name, net in self._nets.items()}, pending

    def find(self, transaction_id: str) -> Entry | None:
        """Return an entry by its id, or None."""
        number = read_number(PREFIX, self.account_id, transaction_id, seed=self._seed)
        return self.read(number) if number is not None and number < len(self) else None

    def read(self, number: int) -> Entry:
        """Return an entry."""
        (_, _, (kind, *values)), _ = self._log.load(self._addresses[number])
        return Entry(number, self.id_of(number), KINDS[kind], *values)
