"""A run over days: its activities as a worker has them, driven as the workflow does, by moved clocks."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import SecretStr
from pydantic_core import to_jsonable_python
from temporalio.testing import ActivityEnvironment

from activities.accounts import AccountKeys, Accounts, Credentials
from activities.charge import ChargeActivities
from activities.close_report import Closer
from activities.follow_ups import FollowUpActivities
from activities.gateway.stripe_gateway import StripeGateway
from activities.ledger.charges import ChargeLedger
from activities.ledger.control import ControlLedger
from activities.ledger.follow_ups import FollowUpLedger
from activities.ledger.planning import PlanLedger
from activities.ledger.runs import RunLedger
from activities.ledger.vault import KeyUse
from activities.plan import Planner
from activities.runs import RunActivities
from activities.vault import CHARGING
from deploy.stripe_sim.payment_methods import detach_from
from deploy.stripe_sim.simulator import Cause
from tests.activities.local_limiter import LocalLimiter
from tests.activities.scene import ACCOUNT, API_KEY, CONFIRM, GOOD_CARD, RUN_ID, Scene
from workflows.contracts import RunKey, Settling, Slice
from workflows.domain.keys import IdempotencyKey
from workflows.domain.retry_policy import RetryPolicy
from workflows.follow_up_contracts import FollowedUp, FollowUpsDue, FollowUpsPlanned

RUN = RunKey(run_id=RUN_ID, account=ACCOUNT.id)
DAY = 86_400.0
PASSES_MAX = 20


@dataclass
class Days:
    """One run over a scene, from its charging to its close."""

    scene: Scene
    charges: ChargeActivities
    follow_ups: FollowUpActivities
    runs: RunActivities
    uses: list[str]  # what the account was opened for

    async def charge(self, cards: Sequence[str], *, policy: RetryPolicy | None = None) -> list[str]:
        """Plan one line per card, charge them all, and settle; return the charge ids."""
        charge_ids = await self.scene.plan(cards)
        if policy is not None:
            await self.scene.owner.execute(
                "UPDATE billing_runs SET request = $1",
                json.dumps({"retry_policy": to_jsonable_python(policy)}),
            )
        await ActivityEnvironment().run(self.charges.charge_slice, Slice(run=RUN, slice_no=0))
        return charge_ids

    async def plan(self) -> FollowUpsPlanned:
        """End the charging."""
        await ActivityEnvironment().run(self.runs.begin_settling, RUN)
        return await ActivityEnvironment().run(self.follow_ups.plan_follow_ups, RUN)

    async def due(self) -> FollowUpsDue:
        """Ask what is due."""
        return await ActivityEnvironment().run(self.follow_ups.read_follow_ups_due, RUN)

    async def look(self) -> FollowedUp:
        """Take what is due one step on."""
        return await ActivityEnvironment().run(self.follow_ups.follow_up_due, RUN)

    async def day(self, days: float) -> FollowUpsDue:
        """Move both clocks to so many days after the start, do what is due then, and return what is left."""
        await self.scene.set_age(days * DAY)
        for _ in range(PASSES_MAX):
            due = await self.due()
            if due.charges.due_now:
                await ActivityEnvironment().run(self.charges.settle_due, Settling(**dict(RUN)))
            elif due.due_now:
                await self.look()
            else:
                return due
        raise AssertionError(f"day {days} never comes to an end")

    async def close(self) -> dict[str, int]:
        """Close the run, and return its counts."""
        report = await ActivityEnvironment().run(self.runs.close_run, RUN)
        return {standing: lines for standing, lines in report.counts.items() if lines}

    async def phase(self) -> str:
        """Return the run's phase in the ledger."""
        return (await RunLedger(self.scene.pool).read(RUN_ID)).phase

    async def report(self, column: str = "report") -> dict[str, Any]:
        """Return the report of the close, or the `charging_report`."""
        found: dict[str, Any] = await self.scene.pool.fetchval(f"SELECT {column} FROM billing_runs")
        return found

    async def outcomes(self) -> list[tuple[str, str | None]]:
        """Return (kind, outcome) of every follow-up, in the order of their beginning."""
        rows = await self.scene.pool.fetch("SELECT kind, outcome FROM follow_ups ORDER BY follow_up_id")
        return [(row["kind"], row["outcome"]) for row in rows]

    def replace_card(self, customer: str, card: str) -> str:
        """Let a customer make another payment method the default one, and return it."""
        method = f"{card}_new_{customer}"
        self.scene.sim.seed(customer, method, default=method)
        return method

    def detach_card(self, payment_method: str) -> None:
        """Let a customer, who has no default one, take a payment method away."""
        simulator = self.scene.sim.simulator
        account = simulator.account(ACCOUNT.id)
        cause = Cause(simulator, account, simulator.clock.now())
        detach_from(cause, account.payment_methods.by_id[payment_method])

    async def pay_on_session(self, charge_id: str, card: str = GOOD_CARD) -> None:
        """Let the customer come back and pay the charge's PaymentIntent themselves."""
        charge = await self.scene.charge(charge_id)
        method = f"{card}_of_{charge.customer}"
        self.scene.sim.seed(charge.customer, method)
        answer = await self.scene.worker().gateway.post(
            CONFIRM,
            account=ACCOUNT,
            path=f"/v1/payment_intents/{charge.payment_intent}/confirm",
            parameters={"payment_method": method, "return_url": "https://shop.example/return"},
            key=IdempotencyKey(f"confirm_by_{charge.customer}_{card}"),
        )
        assert answer.payment_intent is not None or answer.succeeded, answer


class NotedKeys(AccountKeys):
    """One key for everything, and a note of what it was wanted for."""

    uses: ClassVar[list[str]] = []

    async def credentials_for(self, run: RunKey, use: KeyUse = CHARGING) -> Credentials:
        """Return the key."""
        self.uses.append(use.name)
        return await super().credentials_for(run, use)


@asynccontextmanager
async def open_days(scene: Scene) -> AsyncIterator[Days]:
    """Yield a run's activities, as a process of its own has them."""
    NotedKeys.uses.clear()
    accounts = Accounts(
        NotedKeys(key=SecretStr(API_KEY), api_base=scene.sim.url),
        open_gateway=_open_gateway,
        limiter_of=lambda _: LocalLimiter(10_000),
        requests_at_once=16,
        slices_at_once=2,
    )
    charges, control, runs = ChargeLedger(scene.pool), ControlLedger(scene.pool), RunLedger(scene.pool)
    closer = Closer(scene.pool, runs, accounts)
    try:
        yield Days(
            scene,
            ChargeActivities(ledger=charges, accounts=accounts, control=control),
            FollowUpActivities(
                charges=charges,
                follow_ups=FollowUpLedger(scene.pool),
                runs=runs,
                control=control,
                accounts=accounts,
                closer=closer,
            ),
            RunActivities(
                ledger=runs,
                control=control,
                planner=Planner(ledger=PlanLedger(scene.pool), accounts=accounts),
                closer=closer,
            ),
            NotedKeys.uses,
        )
    finally:
        await accounts.close()


def _open_gateway(credentials: Credentials) -> StripeGateway:
    return StripeGateway(api_key=credentials.api_key.get_secret_value(), api_base=credentials.api_base)
