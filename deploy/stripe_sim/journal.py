"""What was on the wire, and what really happened to the money: two records, kept apart."""

from array import array
from collections import OrderedDict
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final

from deploy.stripe_sim.idempotency import name_key
from deploy.stripe_sim.log import Log
from deploy.stripe_sim.rows import Index, Rows

RECENT_REQUESTS_MAX: Final = 1_024
_LOST: Final = 0  # no record stands at address 0: every batch begins with its length


@dataclass(slots=True)
class Request:
    """One request on the wire. `status` is what the client was told; None means that no answer was sent."""

    ordinal: int
    received_at: float
    account: str
    method: str
    path: str
    key: str | None
    body_sha256: str
    answered_at: float | None = None
    status: int | None = None
    request_id: str | None = None
    replayed: bool = False
    fate: str = "running"
    faults: tuple[str, ...] = ()

    def show(self) -> dict[str, Any]:
        """Return the request as the admin API shows it."""
        return dict(zip(_REQUEST_NAMES, _REQUEST_VALUES(self), strict=True))


@dataclass(slots=True)
class Movement:
    """Money moved: one successful charge.

    `request` is the ordinal of the request that caused it, 0 for a debit that settled.
    """

    ordinal: int
    at: float
    account: str
    payment_intent: str
    charge: str
    customer: str | None
    amount: int
    currency: str
    metadata: dict[str, str]
    request: int

    def show(self) -> dict[str, Any]:
        """Return the entry as the admin API shows it."""
        return dict(zip(_MOVEMENT_NAMES, _MOVEMENT_VALUES(self), strict=True))


_REQUEST_NAMES: Final = tuple(item.name for item in fields(Request))
_REQUEST_VALUES: Final = attrgetter(*_REQUEST_NAMES)
_MOVEMENT_NAMES: Final = tuple(item.name for item in fields(Movement))
_MOVEMENT_VALUES: Final = attrgetter(*_MOVEMENT_NAMES)


class Requests(Rows[Request]):
    """The journal as a sequence. The newest requests are kept whole."""

    def __init__(self, log: Log) -> None:
        self._addresses = array("Q")
        self._recent: OrderedDict[int, Request] = OrderedDict()
        self._log = log
        super().__init__(self._addresses.__len__, self._read)

    def append(self, request: Request) -> None:
        """Take in one more request."""
        position = len(self._addresses)
        self._addresses.append(_LOST)
        self._recent[position] = request

    def write(self, request: Request) -> None:
        """Write a request to the log, now that its fate is known."""
        position = request.ordinal - 1
        self._addresses[position] = self._log.append("request", _REQUEST_VALUES(request))
        while len(self._recent) > RECENT_REQUESTS_MAX:
            oldest = next(iter(self._recent))
            if self._addresses[oldest] == _LOST:
                break  # still running: nothing else remembers it
            del self._recent[oldest]

    def restore(self, address: int, ordinal: int) -> bool:
        """Take a request from the log, and return whether it is the first record of it."""
        while len(self._addresses) < ordinal:
            self._addresses.append(_LOST)
        is_first = self._addresses[ordinal - 1] == _LOST
        self._addresses[ordinal - 1] = address
        return is_first

    def _read(self, position: int) -> Request:
        request = self._recent.get(position)
        if request is not None:
            return request
        address = self._addresses[position]
        if address == _LOST:
            return Request(position + 1, 0.0, "", "", "", None, "", fate="lost")
        (_, values), _ = self._log.load(address)
        request = Request(*values)
        request.faults = tuple(request.faults)
        return request


class Journal:
    """Every request to /v1, in order of arrival; `posts` and `repeated_posts` are counted as they come."""

    def __init__(self, log: Log) -> None:
        self.requests = Requests(log)
        self.posts = 0
        self.repeated_posts = 0
        self._times_seen = Index()

    def open(
        self,
        *,
        at: float,
        account: str,
        method: str,
        path: str,
        key: str | None,
        key_name: str | None,
        body_sha256: str,
    ) -> Request:
        """Write down a request that has just arrived; `key_name` is its key's name, see `name_key`."""
        request = Request(len(self.requests) + 1, at, account, method, path, key, body_sha256)
        self.requests.append(request)
        self._count(method, key_name)
        return request

    def close(self, request: Request, *, at: float, status: int | None) -> None:
        """Write down what the client was told."""
        request.answered_at = at
        request.status = status
        self.requests.write(request)

    def times_seen(self, key_name: str) -> int:
        """Return how often this key was on the wire, this time included."""
        return self._times_seen.get(key_name) or 0

    def find(self, ordinal: int) -> Request:
        """Return a request by its number."""
        return self.requests[ordinal - 1]

    def rewrite(self, request: Request) -> None:
        """Write down what became of a request after it was answered."""
        self.requests.write(request)

    def restore(self, address: int, values: list[Any]) -> None:
        """Take a request from the log. One that a kill left unanswered has no record; it reads `lost`."""
        ordinal, _, account, method, _, key, *_ = values
        if self.requests.restore(address, ordinal):
            self._count(method, None if key is None else name_key(account, key))

    def _count(self, method: str, key_name: str | None) -> None:
        if method != "POST":
            return
        self.posts += 1
        if key_name is not None:
            seen = self._times_seen.get(key_name) or 0
            self._times_seen.put(key_name, seen + 1)
            self.repeated_posts += seen > 0


class Book:
    """Every movement of money, in order. Nothing is ever taken out again."""

    def __init__(self, log: Log) -> None:
        self._addresses = array("Q")
        self._log = log
        self._sums: dict[str | None, _Sums] = {}
        self.movements: Rows[Movement] = Rows(self._addresses.__len__, self._read)

    def enter(
        self,
        *,
        at: float,
        account: str,
        payment_intent: str,
        charge: str,
        customer: str | None,
        amount: int,
        currency: str,
        metadata: dict[str, str],
        request: int,
    ) -> None:
        """Write down that money moved."""
        values = (
            *(len(self._addresses) + 1, at, account, payment_intent, charge),
            *(customer, amount, currency, metadata, request),
        )
        self._addresses.append(self._log.append("movement", values))

    def restore(self, address: int) -> None:
        """Take a movement from the log."""
        self._addresses.append(address)

    def summarize(self, identity: str | None) -> dict[str, Any]:
        """Add up the book; `identity` names the metadata key that says which due amount a charge paid.

        Without one, a PaymentIntent is its own identity. A double charge is one identity of one account with
        more than one movement. Asked again, it adds only what is new.
        """
        sums = self._sums.get(identity)
        if sums is None:
            # One name at a time: sums know every identity they have seen.
            self._sums = {identity: (sums := _Sums(identity))}
        for position in range(sums.movements, len(self._addresses)):
            sums.add(self._read(position))
        return {
            "movements": sums.movements,
            "money_moved": dict(sums.money),
            "customers_charged": len(sums.customers),
            "identities": len(sums.first),
            "double_charges": [
                _show_double(name, [self._read(position) for position in positions])
                for name, positions in sums.doubles.items()
            ],
        }

    @property
    def identity_in_use(self) -> str | None:
        """Return the identity that the book was last added up by: asking for it again costs little."""
        return next(iter(self._sums), None)

    def _read(self, position: int) -> Movement:
        (_, values), _ = self._log.load(self._addresses[position])
        return Movement(*values)


class _Sums:
    """What the movements read so far add up to, for one name of the identity."""

    def __init__(self, identity: str | None) -> None:
        self.movements = 0
        self.money: dict[str, int] = {}
        self.customers: set[str] = set()
        self.first: dict[str, int] = {}
        self.doubles: dict[str, list[int]] = {}
        self._identity = identity

    def add(self, entry: Movement) -> None:
        position, self.movements = self.movements, self.movements + 1
        self.money[entry.currency] = self.money.get(entry.currency, 0) + entry.amount
        if entry.customer is not None:
            self.customers.add(f"{entry.account} {entry.customer}")
        name = entry.payment_intent if self._identity is None else entry.metadata.get(self._identity)
        if name is None:
            return
        name = f"{entry.account} {name}"
        first = self.first.setdefault(name, position)
        if first != position:
            self.doubles.setdefault(name, [first]).append(position)


def _show_double(name: str, entries: list[Movement]) -> dict[str, Any]:
    return {
        "identity": name.partition(" ")[2],
        "account": entries[0].account,
        "payment_intents": [entry.payment_intent for entry in entries],
        "amount": sum(entry.amount for entry in entries),
        "currency": entries[0].currency,
    }
