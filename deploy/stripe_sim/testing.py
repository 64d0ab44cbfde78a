"""A simulator inside a test's own event loop, on a free port."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.stripe_sim.admin import summarize
from deploy.stripe_sim.clock import SimClock
from deploy.stripe_sim.deliveries import Attempt
from deploy.stripe_sim.due import settle_due
from deploy.stripe_sim.faults import parse_plan
from deploy.stripe_sim.journal import Movement, Requests
from deploy.stripe_sim.rows import Rows
from deploy.stripe_sim.seeding import seed_account
from deploy.stripe_sim.server import serve
from deploy.stripe_sim.settings import Settings
from deploy.stripe_sim.simulator import Simulator


@dataclass(frozen=True)
class RunningSim:
    """A simulator that listens at `url`; what the admin API does is here without HTTP."""

    url: str
    simulator: Simulator

    @property
    def clock(self) -> SimClock:
        """The movable clock; freeze it before measuring ages."""
        return self.simulator.clock

    @property
    def requests(self) -> Requests:
        """Every request on the wire."""
        return self.simulator.journal.requests

    @property
    def movements(self) -> Rows[Movement]:
        """All money that moved, debits that are due included."""
        settle_due(self.simulator)
        return self.simulator.book.movements

    def summary(self, identity: str | None = None) -> dict[str, Any]:
        """Return what GET /_sim/book/summary shows."""
        settle_due(self.simulator)
        return summarize(self.simulator, identity)

    def seed(
        self, customer: str, *payment_methods: str, account: str | None = None, default: str | None = None
    ) -> None:
        """Make sure that a customer exists, with these payment methods attached."""
        item = {
            "id": customer,
            "payment_methods": [{"id": method_id} for method_id in payment_methods],
            "default_payment_method": default,
        }
        seed_account(self.simulator, {"account": account, "customers": [item]})

    def set_faults(self, *faults: dict[str, Any]) -> None:
        """Put these faults in force, written as in a plan file."""
        self.simulator.replace_faults(parse_plan(list(faults)))

    def change(self, **settings: Any) -> None:
        """Change settings."""
        self.simulator.change_settings(settings)

    @property
    def deliveries(self) -> list[Attempt]:
        """Every attempt to deliver a webhook, oldest first."""
        return list(self.simulator.courier.deliveries.attempts)

    def set_webhook_faults(self, *faults: dict[str, Any]) -> None:
        """Put these faults of webhook delivery in force."""
        self.simulator.courier.replace_faults(list(faults))

    async def deliver(self) -> None:
        """Wait until every webhook that is due has been tried."""
        await self.simulator.courier.idle()


@asynccontextmanager
async def running_sim(
    *, state_dir: Path | None = None, seed: int = 1, port: int = 0, **settings: Any
) -> AsyncIterator[RunningSim]:
    """Run a simulator in this event loop; `settings` are the fields of `Settings`, such as `latency_ms=5`."""
    simulator = Simulator(state_dir=state_dir, seed=seed, settings=Settings().with_changes(settings))
    async with serve(simulator, port=port) as url:
        yield RunningSim(url, simulator)
