"""Where each webhook stands, and the log of the attempts."""

from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from deploy.stripe_sim.log import Log
from deploy.stripe_sim.objects import WebhookEndpoint
from deploy.stripe_sim.store import AccountData
from deploy.stripe_sim.webhook_plan import WebhookFault

if TYPE_CHECKING:
    from deploy.stripe_sim.simulator import Simulator

ATTEMPTS_KEPT_MAX: Final = 20_000


@dataclass(slots=True, eq=False)
class Delivery:
    """One event on its way to one endpoint; `waits_for` counts the later events that pass it first.

    `due_at` is by the simulator's clock, and `left_early` marks one whose deadline does not count any more.
    A copy is sent once and its outcome changes nothing: a duplicate, or an event sent again by hand.
    """

    account: AccountData
    number: int
    owner: AccountData
    endpoint_id: str
    attempt: int = 1
    due_at: float = 0.0
    waits_for: int = 0
    left_early: bool = False
    is_copy: bool = False
    faults: list[WebhookFault] = field(default_factory=list)

    @property
    def endpoint(self) -> WebhookEndpoint:
        """Return the endpoint as it is now."""
        return self.owner.endpoints.by_id[self.endpoint_id]

    @property
    def fault_kinds(self) -> set[str]:
        """Return the kinds of faults that this attempt meets."""
        return {fault.effect.kind for fault in self.faults}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One line of the delivery log; a status of None means that no answer came."""

    at: float
    event: str
    type: str
    account: str
    endpoint: str
    url: str
    attempt: int
    status: int | None
    outcome: str
    next_at: float | None
    faults: tuple[str, ...]

    def show(self) -> dict[str, Any]:
        """Return the attempt as the admin API shows it."""
        return asdict(self)


class Deliveries:
    """The state of every delivery that has not succeeded, and the latest attempts."""

    def __init__(self, log: Log) -> None:
        self.attempts: deque[Attempt] = deque(maxlen=ATTEMPTS_KEPT_MAX)
        self._log = log
        self._unfinished: dict[tuple[str, int, str, str], tuple[int, float]] = {}

    def begin(self, delivery: Delivery, *, at: float) -> None:
        """Count a delivery as pending."""
        self._note(delivery, "pending", at)

    def put_off(self, delivery: Delivery, *, at: float) -> None:
        """Write down when the next attempt is due."""
        self._note(delivery, "pending", at)

    def give_up(self, delivery: Delivery) -> None:
        """Write down that the endpoint will not get this event."""
        if not delivery.is_copy:
            self._note(delivery, "failed", 0)

    def done(self, delivery: Delivery) -> None:
        """Write down that the endpoint has this event."""
        if not delivery.is_copy:
            self._note(delivery, "delivered", 0)

    def restore(self, values: list[Any]) -> None:
        """Take a delivery's state from the log; the account's events follow in `take_unfinished`."""
        *name, state, attempt, at = values
        key = (str(name[0]), int(name[1]), str(name[2]), str(name[3]))
        self._unfinished[key] = (attempt if state == "pending" else -(state == "failed"), at)

    def take_unfinished(self, simulator: "Simulator") -> Iterator[tuple[float, Delivery]]:
        """Yield, once, what was on its way when the log ended, each with the time it is due."""
        for (account_id, number, owner_id, endpoint_id), (attempt, at) in self._unfinished.items():
            account = simulator.account(account_id)
            owner = simulator.account(owner_id)
            if attempt == 0 or endpoint_id not in owner.endpoints.by_id:
                continue
            state = "pending" if attempt > 0 else "failed"
            account.events.undelivered.setdefault(number, {})[endpoint_id] = state
            if attempt > 0:
                yield at, Delivery(account, number, owner, endpoint_id, attempt)
        self._unfinished.clear()

    def _note(self, delivery: Delivery, state: str, at: float) -> None:
        undelivered, endpoint_id = delivery.account.events.undelivered, delivery.endpoint_id
        states = undelivered.setdefault(delivery.number, {})
        if state == "delivered":
            states.pop(endpoint_id, None)
        else:
            states[endpoint_id] = state
        if not states:
            del undelivered[delivery.number]
        self._log.append(
            *("delivery", delivery.account.id, delivery.number, delivery.owner.id, endpoint_id),
            *(state, delivery.attempt, at),
        )
