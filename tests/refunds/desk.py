"""Whoever gives money back in a scene: requests, and an activity that carries them, without Temporal."""

from dataclasses import dataclass, field
from typing import cast

from temporalio.testing import ActivityEnvironment

from activities.ledger.refunds import RefundLedger, RefundRequest
from activities.refund import RefundActivities
from tests.activities.scene import ACCOUNT, GOOD_CARD, RUN_ID, Scene
from tests.web.mailroom import Mailroom
from worker.refunds import look_at_refundable, request_refund
from worker.settings import Settings
from workflows.refund_contracts import RefundOrder, RefundStep

STEPS_MAX = 20


@dataclass
class Desk:
    """Gives back money of a scene's charges."""

    mail: Mailroom
    activities: RefundActivities = field(init=False)

    def __post_init__(self) -> None:
        """Prepare the activity."""
        self.activities = RefundActivities(self.mail.scene.pool, self.mail.accounts)

    @property
    def scene(self) -> Scene:
        """The scene."""
        return self.mail.scene

    @property
    def ledger(self) -> RefundLedger:
        """The requests."""
        return RefundLedger(self.scene.pool)

    async def charge(self, card: str = GOOD_CARD) -> str:
        """Charge one customer, and return the charge's id."""
        [charge_id] = await self.scene.plan([card])
        await self.scene.work()
        return charge_id

    async def ask(
        self, charge_id: str, amount_minor: int | None = None, *, payment_intent: str | None = None
    ) -> RefundRequest:
        """Ask for a refund."""
        pool = self.scene.pool
        found = await look_at_refundable(pool, self.mail.accounts, charge_id, payment_intent)
        return await request_refund(
            pool, _without_proxy(), found, amount_minor=amount_minor, who="tests", reason="scripted"
        )

    async def step(self, request: RefundRequest) -> RefundStep:
        """Carry a request one step."""
        order = RefundOrder(request_id=request.request_id, run_id=RUN_ID, account=ACCOUNT.id)
        return cast("RefundStep", await ActivityEnvironment().run(self.activities.carry_refund, order))

    async def carry(self, request: RefundRequest) -> RefundStep:
        """Carry a request until it ends, however often it takes a step."""
        for _ in range(STEPS_MAX):
            step = await self.step(request)
            if step.is_done:
                return step
        raise AssertionError(f"still {step} after {STEPS_MAX} steps")

    def refunded(self) -> list[int]:
        """Return the amounts that went back, by the simulator's own word."""
        shelf = self.scene.sim.simulator.account(ACCOUNT.id).refunds
        return sorted(one.amount for one in shelf.in_order if one.status not in {"failed", "canceled"})

    async def rows(self) -> list[tuple[str, int, str]]:
        """Return what stands beside the charges: refund id, amount, status."""
        rows = await self.scene.pool.fetch(
            "SELECT refund_id, amount_minor, status FROM refunds ORDER BY created_at, refund_id"
        )
        return [(row["refund_id"], row["amount_minor"], row["status"]) for row in rows]


def _without_proxy() -> Settings:
    return Settings.model_construct(proxy_url=None)
