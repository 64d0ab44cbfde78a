"""The whole state of one simulator, and its way through a restart."""

import heapq
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.stripe_sim.clock import SimClock
from deploy.stripe_sim.draws import make_id
from deploy.stripe_sim.faults import Fault, FaultPlan, parse_plan
from deploy.stripe_sim.forms import Params
from deploy.stripe_sim.idempotency import KeyRing
from deploy.stripe_sim.journal import Book, Journal
from deploy.stripe_sim.limits import RateLimits
from deploy.stripe_sim.log import Log
from deploy.stripe_sim.objects import KINDS, PaymentIntent
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
            self.seed = int(first[1])
        self.accounts: dict[str, AccountData] = {}
        self.keys = KeyRing(clock=self.clock, log=self.log, settings=lambda: self.settings, seed=self.seed)
        self.limits = RateLimits(lambda: self.settings)
        self.faults = FaultPlan(seed=self.seed)
        self.journal = Journal(self.log)
        self.book = Book(self.log)
        self._due: list[tuple[float, str, str]] = []
        for record in records:
            self._restore(record)
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
            account = self.accounts[account_id] = AccountData(account_id, self.log)
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

    def schedule(self, account_id: str, intent: PaymentIntent) -> None:
        """Remember a bank debit that will be decided at its `settle_at`."""
        if intent.settle_at is not None:
            heapq.heappush(self._due, (intent.settle_at, account_id, intent.id))

    def take_due(self) -> list[tuple[AccountData, PaymentIntent]]:
        """Return the bank debits whose time has come, each once."""
        due: list[tuple[AccountData, PaymentIntent]] = []
        while self._due and self._due[0][0] <= self.clock.now():
            at, account_id, intent_id = heapq.heappop(self._due)
            account = self.account(account_id)
            intent = account.intents.by_id[intent_id]
            if intent.settle_at == at:
                due.append((account, intent))
        return due

    def close(self) -> None:
        """Flush and close the log."""
        self.log.close()

    def _restore(self, record: list[Any]) -> None:
        kind, *values = record
        if kind in KINDS:
            restored = self.account(values[0]).restore(kind, values[1])
            if isinstance(restored, PaymentIntent):
                self.schedule(values[0], restored)
        elif kind == "key":
            self.keys.restore(values)
        elif kind == "request":
            self.journal.restore(values[0])
        elif kind == "movement":
            self.book.restore(values[0])
        elif kind == "clock":
            self.clock.offset_seconds, self.clock.frozen_at = values
        elif kind == "settings":
            self.settings = Settings(**values[0])
        elif kind == "faults":
            self.faults.replace(parse_plan(values[0]))
        elif kind == "fault counts":
            self.faults.restore_counts(values[0])


@dataclass(slots=True)
class Call:
    """One request as an endpoint sees it; `ids` are those in the path, `request` its ordinal."""

    simulator: Simulator
    account: AccountData
    params: Params
    ids: tuple[str, ...]
    request: int
    request_id: str

    @property
    def now(self) -> float:
        """The simulated time."""
        return self.simulator.clock.now()

    def new_id(self, prefix: str, count: int) -> str:
        """Return the id of the account's next object of this kind."""
        return make_id(prefix, self.account.id, count, seed=self.simulator.seed)
