"""The events of one account: what happened, with the object as it was at that moment.

A busy simulator makes several events per payment, so an event costs a few bytes of memory (place, time, type)
and a line in the spool; it is put into Stripe's shape when somebody asks for it.
"""

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from deploy.stripe_sim.encoding import encode_json
from deploy.stripe_sim.log import Log
from deploy.stripe_sim.numbering import make_numbered_id, read_number
from deploy.stripe_sim.spool import Spool

PREFIX: Final = "evt"
# docs.stripe.com/api/events/list: "going back up to 30 days".
KEPT_SECONDS: Final = 30 * 86_400


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `kind` and `values` are the object as the log writes it, `previous` its changed fields."""

    number: int
    id: str
    type: str
    created: int
    kind: str
    values: list[Any]
    request_id: str | None
    key: str | None
    previous: dict[str, Any] | None


class EventLog:
    """All events of an account, by number."""

    def __init__(self, account_id: str, *, log: Log, spool: Spool, seed: int) -> None:
        self.account_id = account_id
        # Endpoints that have not taken an event yet, and whether they ever will: see `courier`.
        self.undelivered: dict[int, dict[str, str]] = {}
        self._log = log
        self._spool = spool
        self._seed = seed
        self._created = array("q")
        self._offsets = array("Q")
        self._lengths = array("I")
        self._types = array("H")
        self._type_names: list[str] = []
        self._type_codes: dict[str, int] = {}
        self._monotone = True

    def __len__(self) -> int:
        return len(self._created)

    def record(
        self,
        event_type: str,
        created: int,
        kind: str,
        values: tuple[Any, ...],
        request_id: str | None,
        key: str | None,
        previous: dict[str, Any] | None,
    ) -> int:
        """Write down an event and return its number."""
        line = encode_json((kind, values, request_id, key, previous))
        self._log.append("event", self.account_id, event_type, created, line)
        return self._place(event_type, created, line)

    def restore(self, values: list[Any]) -> None:
        """Take an event from the log."""
        self._place(*values)

    def id_of(self, number: int) -> str:
        """Return the id of an event."""
        return make_numbered_id(PREFIX, self.account_id, number, seed=self._seed)

    def type_of(self, number: int) -> str:
        """Return the type of an event."""
        return self._type_names[self._types[number]]

    def created_of(self, number: int) -> int:
        """Return the second in which an event was made."""
        return self._created[number]

    def find(self, event_id: str) -> int | None:
        """Return the number of an event, or None if there is none of this id."""
        number = read_number(PREFIX, self.account_id, event_id, seed=self._seed)
        return number if number is not None and number < len(self) else None

    def read(self, number: int) -> Event:
        """Return an event."""
        line = self._spool.read(self._offsets[number], self._lengths[number])
        kind, values, request_id, key, previous = json.loads(line)
        return Event(
            number,
            self.id_of(number),
            self.type_of(number),
            self._created[number],
            kind,
            values,
            request_id,
            key,
            previous,
        )

    def copy(self, number: int) -> int:
        """Write down the same change again, as an event of its own, and return its number."""
        event = self.read(number)
        return self.record(
            event.type,
            event.created,
            event.kind,
            tuple(event.values),
            event.request_id,
            event.key,
            event.previous,
        )

    def oldest(self, since: float) -> int:
        """Return a number below which no event is from this second or later."""
        return bisect_left(self._created, since) if self._monotone else 0

    def walk(self, numbers: range, *, low: float, high: float, types: frozenset[str]) -> Iterator[int]:
        """Yield those of the numbers that lie in the window and, unless `types` is empty, are of a type."""
        codes = {self._type_codes[name] for name in types if name in self._type_codes}
        for number in numbers:
            if low <= self._created[number] <= high and (not types or self._types[number] in codes):
                yield number

    def _place(self, event_type: str, created: int, line: str) -> int:
        code = self._type_codes.get(event_type)
        if code is None:
            code = self._type_codes[event_type] = len(self._type_names)
            self._type_names.append(event_type)
        if self._created and self._created[-1] > created:
            self._monotone = False
        data = line.encode()
        self._offsets.append(self._spool.append(data))
        self._lengths.append(len(data))
        self._created.append(created)
        self._types.append(code)
        return len(self._created) - 1
