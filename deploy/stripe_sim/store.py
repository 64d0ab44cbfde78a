"""The objects of one account, with the orders that lists need; no work grows with the number of objects.

In memory an object is its id and a few numbers. Its fields are in the log; the objects used last are kept
whole. An object that was changed must be saved before anything is awaited: later it may have been read anew.
"""

from array import array
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from deploy.stripe_sim.events import EventLog
from deploy.stripe_sim.ledger import Ledger
from deploy.stripe_sim.log import Log
from deploy.stripe_sim.objects import (
    KINDS,
    Charge,
    Customer,
    Deferred,
    Dispute,
    PaymentIntent,
    PaymentMethod,
    Refund,
    WebhookEndpoint,
)
from deploy.stripe_sim.rows import Index, Rows

LIVE_OBJECTS_MAX: Final = 1_024


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


class Line(Rows[ListedT]):
    """Objects in order of creation: a whole shelf, or one customer's part of it."""

    def __init__(self, shelf: "Shelf[ListedT]", seqs: "array[int] | None" = None) -> None:
        if seqs is None:
            super().__init__(shelf.next_seq, shelf.at)
        else:
            super().__init__(seqs.__len__, lambda position: shelf.at(seqs[position]))
        self._shelf = shelf
        self._seqs = seqs

    def created_at(self, position: int) -> int:
        """Return when the object at this position was created, without reading it."""
        return self._shelf.created_at(position if self._seqs is None else self._seqs[position])

    def find(self, item: ListedT) -> int | None:
        """Return an object's position, or None when it is not in this line."""
        if self._seqs is None:
            return item.seq
        position = bisect_left(self._seqs, item.seq)
        is_here = position < len(self._seqs) and self._seqs[position] == item.seq
        return position if is_here else None


class _ById(Mapping[str, ListedT]):
    def __init__(self, shelf: "Shelf[ListedT]", seqs: Index) -> None:
        self._shelf = shelf
        self._seqs = seqs

    def __getitem__(self, object_id: str) -> ListedT:
        seq = self._seqs.get(object_id)
        if seq is None:
            raise KeyError(object_id)
        return self._shelf.at(seq)

    def get(self, object_id: str, default: Any = None) -> Any:
        # Mapping's own raises and catches a KeyError for every miss.
        seq = self._seqs.get(object_id)
        return default if seq is None else self._shelf.at(seq)

    def __contains__(self, object_id: object) -> bool:
        return isinstance(object_id, str) and object_id in self._seqs

    def __iter__(self) -> Iterator[str]:
        return (item.id for item in self._shelf.in_order)

    def __len__(self) -> int:
        return self._shelf.next_seq()


class _ByCustomer(Mapping[str, Line[ListedT]]):
    def __init__(self, shelf: "Shelf[ListedT]", seqs: "dict[str, array[int]]") -> None:
        self._shelf = shelf
        self._seqs = seqs

    def __getitem__(self, customer_id: str) -> Line[ListedT]:
        return Line(self._shelf, self._seqs[customer_id])

    def __iter__(self) -> Iterator[str]:
        return iter(self._seqs)

    def __len__(self) -> int:
        return len(self._seqs)


class Shelf(Generic[ListedT]):
    """All objects of one kind, by id, in order of creation, and per customer."""

    def __init__(self, kind: str, account_id: str, log: Log) -> None:
        # False once the clock was moved back between two objects: then `created` no longer sorts the shelf.
        self.monotone = True
        self.status_counts: dict[str, int] = {}
        self._kind = kind
        self._account_id = account_id
        self._log = log
        self._addresses = array("Q")
        self._created = array("q")
        self._statuses = array("B")
        self._status_codes: dict[str, int] = {}
        self._status_names: list[str] = []
        self._seqs = Index()
        self._customer_seqs: dict[str, array[int]] = {}
        self._restored_customers: list[str | None] = []
        self._live: OrderedDict[int, ListedT] = OrderedDict()
        self.by_id: Mapping[str, ListedT] = _ById(self, self._seqs)
        self.in_order: Line[ListedT] = Line(self)
        self.by_customer: Mapping[str, Line[ListedT]] = _ByCustomer(self, self._customer_seqs)

    def next_seq(self) -> int:
        """Return the place that the next new object will have."""
        return len(self._addresses)

    def at(self, seq: int) -> ListedT:
        """Return the object at a place."""
        item = self._live.get(seq)
        return self._keep_live(seq, self.load(self._addresses[seq])) if item is None else item

    def load(self, address: int) -> ListedT:
        """Return a copy of an object as it was when it was saved to this address."""
        record, _ = self._log.load(address)
        item: ListedT = KINDS[self._kind](*record[2])  # type: ignore[assignment]  # one class per kind
        return item

    def address_of(self, item: ListedT) -> int:
        """Return where the latest saved state of an object is."""
        return self._addresses[item.seq]

    def created_at(self, seq: int) -> int:
        """Return when the object at a place was created, without reading it."""
        return self._created[seq]

    def add(self, item: ListedT) -> int:
        """Take in a new object and write it to the log; returns the address of what was written."""
        address = self._log.append(self._kind, self._account_id, item.to_values())
        self._place(item, address)
        self._keep_live(item.seq, item)
        self.index_customer(item)
        return address

    def save(self, item: ListedT) -> int:
        """Write the present state of an object to the log; returns the address of what was written."""
        seq = item.seq
        address = self._addresses[seq] = self._log.append(self._kind, self._account_id, item.to_values())
        self._count_status(item)
        live = self._live.get(seq)
        if live is None:
            self._keep_live(seq, item)
        elif live is not item:
            live.take_values(item)
        return address

    def index_customer(self, item: ListedT) -> None:
        """Let an object appear in its customer's list from now on, in order of creation."""
        customer_id = getattr(item, "customer", None)
        if customer_id is None:
            return
        seqs = self._customer_seqs.get(customer_id)
        if seqs is None:
            seqs = self._customer_seqs[customer_id] = array("I")
        if not seqs or seqs[-1] < item.seq:
            seqs.append(item.seq)
        elif item.seq not in seqs:
            insort(seqs, item.seq)

    def unindex_customer(self, item: ListedT, customer_id: str) -> None:
        """Take an object out of the list of a customer that it no longer belongs to."""
        seqs = self._customer_seqs.get(customer_id)
        if seqs is not None and item.seq in seqs:
            seqs.remove(item.seq)

    def restore(self, address: int, values: list[Any]) -> ListedT:
        """Take an object from the log: new, or a later state of one that is here."""
        item: ListedT = KINDS[self._kind](*values)  # type: ignore[assignment]  # one class per kind
        customer_id = getattr(item, "customer", None)
        if item.seq == len(self._addresses):
            self._place(item, address)
            self._restored_customers.append(customer_id)
        else:
            self._addresses[item.seq] = address
            self._count_status(item)
            self._restored_customers[item.seq] = customer_id
        return item

    def finish_restore(self) -> None:
        """Make the customers' lists, once everything was restored."""
        customers, self._restored_customers = self._restored_customers, []
        for seq, customer_id in enumerate(customers):
            if customer_id is not None:
                self._customer_seqs.setdefault(customer_id, array("I")).append(seq)

    def _place(self, item: ListedT, address: int) -> None:
        if item.seq != len(self._addresses):
            raise RuntimeError(f"{item.id} has place {item.seq}, and {len(self._addresses)} is free")
        if self._created and self._created[-1] > item.created:
            self.monotone = False
        self._seqs.put(item.id, item.seq)
        self._addresses.append(address)
        self._created.append(item.created)
        self._count_status(item)

    def _count_status(self, item: ListedT) -> None:
        status = getattr(item, "status", None)
        if status is None:
            return
        code = self._status_codes.get(status)
        if code is None:
            code = self._status_codes[status] = len(self._status_names)
            self._status_names.append(status)
        if item.seq == len(self._statuses):
            self._statuses.append(code)
        else:
            before = self._statuses[item.seq]
            if before == code:
                return
            self.status_counts[self._status_names[before]] -= 1
            self._statuses[item.seq] = code
        self.status_counts[status] = self.status_counts.get(status, 0) + 1

    def _keep_live(self, seq: int, item: ListedT) -> ListedT:
        live = self._live
        live[seq] = item
        if len(live) > LIVE_OBJECTS_MAX:
            live.popitem(last=False)
        return item


class AccountData:
    """Everything that one account holds. Accounts see nothing of each other."""

    def __init__(self, account_id: str, log: Log, *, seed: int) -> None:
        self.id = account_id
        self.customers: Shelf[Customer] = Shelf("customer", account_id, log)
        self.payment_methods: Shelf[PaymentMethod] = Shelf("payment_method", account_id, log)
        self.intents: Shelf[PaymentIntent] = Shelf("payment_intent", account_id, log)
        self.charges: Shelf[Charge] = Shelf("charge", account_id, log)
        self.refunds: Shelf[Refund] = Shelf("refund", account_id, log)
        self.disputes: Shelf[Dispute] = Shelf("dispute", account_id, log)
        self.endpoints: Shelf[WebhookEndpoint] = Shelf("webhook_endpoint", account_id, log)
        self.deferred: Shelf[Deferred] = Shelf("deferred", account_id, log)
        self.events = EventLog(account_id, log=log, seed=seed)
        self.ledger = Ledger(account_id, log=log, seed=seed)
        self._shelves: dict[str, Shelf[Any]] = {
            "customer": self.customers,
            "payment_method": self.payment_methods,
            "payment_intent": self.intents,
            "charge": self.charges,
            "refund": self.refunds,
            "dispute": self.disputes,
            "webhook_endpoint": self.endpoints,
            "deferred": self.deferred,
        }

    def shelf(self, kind: str) -> Shelf[Any]:
        """Return the shelf of a kind of object."""
        return self._shelves[kind]

    def restore(self, kind: str, address: int, values: list[Any]) -> Any:
        """Take one object from the log and return it."""
        return self._shelves[kind].restore(address, values)

    def finish_restore(self) -> None:
        """Bring every list in order, once everything was restored."""
        for shelf in self._shelves.values():
            shelf.finish_restore()
