"""What was on the wire, and what really happened to the money: two records, kept apart."""

from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from typing import Any

from deploy.stripe_sim.log import Log


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
        return asdict(self)


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
        return asdict(self)


# dataclasses.astuple copies deeply, which costs more than the rest of the journal.
_REQUEST_VALUES = attrgetter(*(item.name for item in fields(Request)))
_MOVEMENT_VALUES = attrgetter(*(item.name for item in fields(Movement)))


class Journal:
    """Every request to /v1, in order of arrival; `posts` and `repeated_posts` are counted as they come."""

    def __init__(self, log: Log) -> None:
        self.requests: list[Request] = []
        self.posts = 0
        self.repeated_posts = 0
        self._times_seen: dict[tuple[str, str], int] = {}
        self._log = log

    def open(
        self, *, at: float, account: str, method: str, path: str, key: str | None, body_sha256: str
    ) -> Request:
        """Write down a request that has just arrived."""
        request = Request(len(self.requests) + 1, at, account, method, path, key, body_sha256)
        self.requests.append(request)
        self._count(request)
        return request

    def close(self, request: Request, *, at: float, status: int | None) -> None:
        """Write down what the client was told."""
        request.answered_at = at
        request.status = status
        self._log.append("request", _REQUEST_VALUES(request))

    def times_seen(self, account: str, key: str) -> int:
        """Return how often this key was on the wire, this time included."""
        return self._times_seen.get((account, key), 0)

    def restore(self, values: list[Any]) -> None:
        """Take a request from the log. One that a kill left unanswered has no record; it reads `lost`."""
        request = Request(*values)
        request.faults = tuple(request.faults)
        while len(self.requests) < request.ordinal:
            lost = Request(len(self.requests) + 1, request.received_at, "", "", "", None, "", fate="lost")
            self.requests.append(lost)
        self.requests[request.ordinal - 1] = request
        self._count(request)

    def _count(self, request: Request) -> None:
        if request.method != "POST":
            return
        self.posts += 1
        if request.key is not None:
            name = (request.account, request.key)
            seen = self._times_seen.get(name, 0)
            self._times_seen[name] = seen + 1
            self.repeated_posts += seen > 0


class Book:
    """Every movement of money, in order, and what it adds up to."""

    def __init__(self, log: Log) -> None:
        self.movements: list[Movement] = []
        self._log = log

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
        """Write down that money moved. Nothing is ever taken out again."""
        ordinal = len(self.movements) + 1
        entry = Movement(
            ordinal, at, account, payment_intent, charge, customer, amount, currency, dict(metadata), request
        )
        self.movements.append(entry)
        self._log.append("movement", _MOVEMENT_VALUES(entry))

    def restore(self, values: list[Any]) -> None:
        """Take a movement from the log."""
        self.movements.append(Movement(*values))

    def summarize(self, identity: str | None) -> dict[str, Any]:
        """Add up the book; `identity` names the metadata key that says which due amount a charge paid.

        Without one, a PaymentIntent is its own identity. A double charge is one identity of one account with
        more than one movement.
        """
        money: dict[str, int] = {}
        customers: set[tuple[str, str]] = set()
        paid: dict[tuple[str, str], list[Movement]] = {}
        for entry in self.movements:
            money[entry.currency] = money.get(entry.currency, 0) + entry.amount
            if entry.customer is not None:
                customers.add((entry.account, entry.customer))
            name = entry.payment_intent if identity is None else entry.metadata.get(identity)
            if name is not None:
                paid.setdefault((entry.account, name), []).append(entry)
        return {
            "movements": len(self.movements),
            "money_moved": money,
            "customers_charged": len(customers),
            "identities": len(paid),
            "double_charges": [
                {
                    "identity": name,
                    "account": account,
                    "payment_intents": [entry.payment_intent for entry in entries],
                    "amount": sum(entry.amount for entry in entries),
                    "currency": entries[0].currency,
                }
                for (account, name), entries in paid.items()
                if len(entries) > 1
            ],
        }
