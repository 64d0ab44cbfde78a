"""The objects of one account, with the orders that lists need; no work grows with the number of objects."""

from typing import Any, Generic, Protocol, TypeVar

from deploy.stripe_sim.log import Log
from deploy.stripe_sim.objects import KINDS, Charge, Customer, PaymentIntent, PaymentMethod, Record


class Listed(Protocol):
    """What a list needs to know of an object: `seq` is its place among all of its kind."""

    id: str
    seq: int
    created: int

    def to_values(self) -> tuple[Any, ...]:
        """Return the fields for the log."""
        ...

    def take_values(self, other: Any) -> None:
        """Become a copy of the other."""
        ...


ListedT = TypeVar("ListedT", bound=Listed)


class Shelf(Generic[ListedT]):
    """All objects of one kind, by id, in order of creation, and per customer."""

    def __init__(self, kind: str, account_id: str, log: Log) -> None:
        self.by_id: dict[str, ListedT] = {}
        self.in_order: list[ListedT] = []
        self.by_customer: dict[str, list[ListedT]] = {}
        # False once the clock was moved back between two objects: then `created` no longer sorts the shelf.
        self.monotone = True
        self._kind = kind
        self._account_id = account_id
        self._log = log

    def next_seq(self) -> int:
        """Return the place that the next new object will have."""
        return len(self.in_order)

    def add(self, item: ListedT) -> None:
        """Take in a new object and write it to the log."""
        self._place(item)
        self.save(item)

    def save(self, item: ListedT) -> None:
        """Write the present state of an object to the log."""
        self._log.append(self._kind, self._account_id, item.to_values())

    def restore(self, item: ListedT) -> None:
        """Take an object from the log: new, or a later state of one that is here."""
        known = self.by_id.get(item.id)
        if known is None:
            self._place(item)
            return
        before = getattr(known, "customer", None)
        known.take_values(item)
        if getattr(known, "customer", None) != before:
            self.index_customer(known)

    def index_customer(self, item: ListedT) -> None:
        """Let an object appear in its customer's list from now on, in order of creation."""
        customer_id = getattr(item, "customer", None)
        if customer_id is None:
            return
        items = self.by_customer.setdefault(customer_id, [])
        items.append(item)
        if len(items) > 1 and items[-2].seq > item.seq:
            items.sort(key=lambda listed: listed.seq)

    def _place(self, item: ListedT) -> None:
        if self.in_order and self.in_order[-1].created > item.created:
            self.monotone = False
        self.by_id[item.id] = item
        self.in_order.append(item)
        self.index_customer(item)


class AccountData:
    """Everything that one account holds. Accounts see nothing of each other."""

    def __init__(self, account_id: str, log: Log) -> None:
        self.id = account_id
        self.customers: Shelf[Customer] = Shelf("customer", account_id, log)
        self.payment_methods: Shelf[PaymentMethod] = Shelf("payment_method", account_id, log)
        self.intents: Shelf[PaymentIntent] = Shelf("payment_intent", account_id, log)
        self.charges: Shelf[Charge] = Shelf("charge", account_id, log)
        self._shelves: dict[str, Shelf[Any]] = {
            "customer": self.customers,
            "payment_method": self.payment_methods,
            "payment_intent": self.intents,
            "charge": self.charges,
        }

    def restore(self, kind: str, values: list[Any]) -> Record:
        """Take one object from the log and return it."""
        item = KINDS[kind](*values)
        shelf = self._shelves[kind]
        shelf.restore(item)
        restored: Record = shelf.by_id[values[0]]
        return restored
