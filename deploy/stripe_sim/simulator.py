"""The whole state of one simulator, and its way through a restart."""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.stripe_sim.agenda import Agenda
from deploy.stripe_sim.clock import SimClock
from deploy.stripe_sim.courier import Courier
from deploy.stripe_sim.draws import make_id
from deploy.stripe_sim.faults import Fault, FaultPlan, parse_plan
from deploy.stripe_sim.forms import Params
from deploy.stripe_sim.idempotency import KeyRing, Slot, name_key
from deploy.stripe_sim.journal import Book, Journal
from deploy.stripe_sim.limits import RateLimits
from deploy.stripe_sim.log import Log
from deploy.stripe_sim.objects import KIND_NAMES, KINDS, Record
from deploy.stripe_sim.search_index import SearchIndex
from deploy.stripe_sim.settings import Settings
from deploy.stripe_sim.store import AccountData


class Simulator:
    """A Stripe of its own: accounts, keys, clock, faults, journal and book.

    With a state directory everything but requests in flight is there again after a restart, the seed
    included.
    """

    def __init__(
        self, *, state_dir: Path | None = None, seed: int | None = None, settings: Settings | None = None
    ) -> None:
        self.clock = SimClock()
        self.settings = settings or Settings()
        self.log = Log(state_dir)
        records = self.log.read()
        first = next(records, None)
        if first is None:
            self.seed = secrets.randbelow(1 << 32) if seed is None else seed
        else:
            self.seed = int(first[1][1])
        self.accounts: dict[str, AccountData] = {}
        self.keys = KeyRing(clock=self.clock, log=self.log, settings=lambda: self.settings, seed=self.seed)
        self.limits = RateLimits(lambda: self.settings)
        self.faults = FaultPlan(seed=self.seed)
        self.journal = Journal(self.log)
        self.book = Book(self.log)
        self.agenda = Agenda()
        self.courier = Courier(self)
        self.search = SearchIndex()
        self._restore_all(records)
        self._new = first is None

    def start(self) -> None:
        """Begin to write the log; needs a running event loop."""
        if self._new:
            self.log.append("seed", self.seed)
            self.log.append("settings", self.settings.show())
            self._new = False
        if self.faults.is_armed:
            self.log.append("faults", self.faults.show())

    def account(self, account_id: str) -> AccountData:
        """Return an account's data; any account exists as soon as it is named."""
        account = self.accounts.get(account_id)
        if account is None:
            account = self.accounts[account_id] = AccountData(account_id, self.log, seed=self.seed)
        return account

    def change_settings(self, changes: dict[str, Any]) -> None:
        """Change settings; raises SettingsError."""
        self.settings = self.settings.with_changes(changes)
        self.log.append("settings", self.settings.show())

    def replace_faults(self, faults: list[Fault]) -> None:
        """Put a fault plan in force."""
        self.faults.replace(faults)
        self.log.append("faults", self.faults.show())

    def save_clock(self) -> None:
        """Write down where the clock stands."""
        self.log.append("clock", self.clock.offset_seconds, self.clock.frozen_at)

    def close(self) -> None:
        """Flush and close the log."""
        self.log.close()

    def _hold_keys(self, account: AccountData) -> None:
        for item in account.deferred.in_order:
            if item.key is not None and item.holds is not None and item.settle_at is not None:
                self.keys.hold(name_key(account.id, item.key), Slot(*item.holds))

    def _restore_all(self, records: Iterator[tuple[int, list[Any]]]) -> None:
        restorers: dict[str, Callable[[int, list[Any]], object]] = {
            "event": lambda address, values: self.account(values[0]).events.restore(address, values[1:]),
            "balance": lambda address, values: self.account(values[0]).ledger.restore(address, values[1]),
            "delivery": lambda _, values: self.courier.deliveries.restore(values),
            "webhook faults": lambda _, values: self.courier.restore_faults(values[0]),
            "key": lambda address, values: self.keys.restore(address, values[0]),
            "request": lambda address, values: self.journal.restore(address, values[0]),
            "movement": lambda address, _: self.book.restore(address),
            "clock": lambda _, values: self.clock.restore(*values),
            "settings": lambda _, values: setattr(self, "settings", Settings(**values[0])),
            "faults": lambda _, values: self.faults.replace(parse_plan(values[0])),
            "fault counts": lambda _, values: self.faults.restore_counts(values[0]),
        }
        for address, (kind, *values) in records:
            if kind in KINDS:
                item = self.account(values[0]).restore(kind, address, values[1])
                self.agenda.put(kind, values[0], item)
            else:
                restorers[kind](address, values)
        for account in self.accounts.values():
            account.finish_restore()
            self._hold_keys(account)


@dataclass(slots=True)
class Cause:
    """Why something changes: a request, or the clock; `at` is when.

    `request` is the ordinal of the request, 0 for the clock; `request_id` and `key` end up in its events.
    """

    simulator: Simulator
    account: AccountData
    at: float
    request: int = 0
    request_id: str | None = None
    key: str | None = None

    def new_id(self, prefix: str, count: int) -> str:
        """Return the id of the account's next object of this kind."""
        return make_id(prefix, self.account.id, count, seed=self.simulator.seed)

    def announce(self, event_type: str, item: Record, previous: dict[str, Any] | None = None) -> None:
        """Make an event of the object as it was last saved, and give it to the courier."""
        kind = KIND_NAMES[type(item)]
        number = self.account.events.record(
            event_type,
            int(self.at),
            kind,
            self.account.shelf(kind).address_of(item),
            request_id=self.request_id,
            key=self.key,
            previous=previous,
        )
        self.simulator.courier.take(self.account, number)

    def schedule(self, item: Record) -> None:
        """Remember the object's `settle_at`."""
        self.simulator.agenda.put(KIND_NAMES[type(item)], self.account.id, item)
        self.simulator.courier.wake()


@dataclass(slots=True)
class Call:
    """One request as an endpoint sees it; `ids` are those in the path, `request` its ordinal."""

    simulator: Simulator
    account: AccountData
    params: Params
    ids: tuple[str, ...]
    request: int
    request_id: str
    key: str | None = None

    @property
    def now(self) -> float:
        """The simulated time."""
        return self.simulator.clock.now()

    def cause(self) -> Cause:
        """Return this request as the cause of a change that happens now."""
        return Cause(self.simulator, self.account, self.now, self.request, self.request_id, self.key)

    def new_id(self, prefix: str, count: int) -> str:
        """Return the id of the account's next object of this kind."""
        return make_id(prefix, self.account.id, count, seed=self.simulator.seed)
