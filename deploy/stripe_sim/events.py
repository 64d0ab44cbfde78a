"""The events of one account: what happened, with the object as it was at that moment.

A busy simulator makes several events per payment, so an event costs a few bytes of memory (place, time, type)
and one short record, which names the record of the object as it was saved; it is put into Stripe's shape when
somebody asks for it.
"""

from array import array
from dataclasses import dataclass
from typing import Any, Final

from deploy.stripe_sim.log import Log
from deploy.stripe_sim.numbering import make_numbered_id, read_number

PREFIX: Final = "evt"
# docs.stripe.com/api/events/list: "going back up to 30 days".
KEPT_SECONDS: Final = 30 * 86_400


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `kind` and `address` say where the object was saved, `previous` are its changed fields."""

    number: int
    id: str
    type: str
    created: int
    kind: str
    address: int
    request_id: str | None
    key: str | None
    previous: dict[str, Any] | None


class EventLog:
    """All events of an account, by number."""

    def __init__(self, account_id: str, *, log: Log, seed: int) -> None:
        self.account_id = account_id
        # Per event that an endpoint has not taken: which endpoints, and "pending" or "failed".
        self.undelivered: dict[int, dict[str, str]] = {}
        self.created = array("q")
        # False once an event is older than the one before it.
        self.monotone = True
        self._log = log
        self._seed = seed
        self._addresses = array("Q")
        self._types = array("H")
        self._type_names: list[str] = []
        self._type_codes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.created)

    def record(
        self,
        event_type: str,
        created: int,
        kind: str,
        address: int,
        *,
        request_id: str | None,
        key: str | None,
        previous: dict[str, Any] | None,
    ) -> int:
        """Write down an event of an object that was saved at `address`, and return its number."""
        own_address = self._log.append(
            "event", self.account_id, event_type, created, kind, address, request_id, key, previous
        )
        return self._place(own_address, event_type, created)

    def restore(self, address: int, values: list[Any]) -> None:
        """Take an event from the log."""
        self._place(address, values[0], values[1])

    def id_of(self, number: int) -> str:
        """Return the id of an event."""
        return make_numbered_id(PREFIX, self.account_id, number, seed=self._seed)

    def type_of(self, number: int) -> str:
        """Return the type of an event."""
        return self._type_names[self._types[number]]

    def find(self, event_id: str) -> int | None:
        """Return the number of an event, or None if there is none of this id."""
        number = read_number(PREFIX, self.account_id, event_id, seed=self._seed)
        return number if number is not None and number < len(self) else None

    def read(self, number: int) -> Event:
        """Return an event."""
        record, _ = self._log.load(self._addresses[number])
        return Event(number, self.id_of(number), *record[2:])

    def copy(self, number: int) -> int:
        """Write down the same change again, as an event of its own, and return its number."""
        event = self.read(number)
        return self.record(
            event.type,
            event.created,
            event.kind,
            event.address,
            request_id=event.request_id,
            key=event.key,
            previous=event.previous,
        )

    def _place(self, address: int, event_type: str, created: int) -> int:
        code = self._type_codes.get(event_type)
        if code is None:
            code = self._type_codes[event_type] = len(self._type_names)
            self._type_names.append(event_type)
        if self.created and self.created[-1] > created:
            self.monotone = False
        self._addresses.append(address)
        self.created.append(created)
        self._types.append(code)
        return len(self.created) - 1
