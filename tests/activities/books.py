"""A ledger and a simulated Stripe side by side, filled row by row, so that they can be made to disagree."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

from activities.gateway.requests import Request, StripeAccount, confirm_request, create_request
from activities.gateway.stripe_gateway import StripeGateway
from activities.ledger.database import Pool, open_pool
from deploy.postgres import Database
from deploy.stripe_sim.testing import RunningSim, running_sim
from tests.activities.dashboard import post
from tests.ledger.planting import run_as_owner
from workflows.domain.answer import Answer
from workflows.domain.keys import Identity, Operation, key_for

ACCOUNT, PERIOD, RUN = "acct_sim", "2031-03", "billing-run/acct_sim/2031-03"
API_KEY = "sk_test_4Synthetic8Key0Of15Our23Tests42"
AMOUNT_MINOR = 1_250

_INSERT_RUN = """
INSERT INTO billing_runs (run_id, account, period, owner, phase, source, source_sha256, started_by, selected,
                          planned_at, locked_at, plan_hash, approved_hash, approved_at, counts)
VALUES ($1, $2, $3, 'owner', $4, 'charges.csv', 'ab', 'tests', $5, ledger_now(), ledger_now(), 'planted',
        'planted', ledger_now(),
        CASE $4 WHEN 'closed' THEN '{}'::jsonb END)
"""
_INSERT_CHARGE = """
INSERT INTO charges (charge_id, run_id, account, customer, period, line, source_row, slice_no, currency,
                     amount_minor, payment_method, state, reason, payment_intent, changed_at)
VALUES ($1, $2, $3, $4, $5, $6, 2, 0, 'usd', $7, $10, $8, 'as written', $9, ledger_now())
"""

_INSERT_REFUND = """
INSERT INTO refunds (refund_id, charge_id, account, payment_intent, amount_minor, currency, status,
                     created_at, look, seen_at)
VALUES ($1, $2, $3, $4, $5, 'usd', 'succeeded', ledger_now(), 1, ledger_now())
"""


def charge_id_of(customer: str, line: str = "base") -> str:
    """Return the identity of a line of this run."""
    return Identity.of(ACCOUNT, customer, PERIOD, line).charge_id


@dataclass(frozen=True)
class Books:
    """Both books of one run."""

    pool: Pool
    gateway: StripeGateway
    sim: RunningSim

    async def open_run(self, phase: str = "settling", *, run_id: str = RUN, selected: int = 0) -> None:
        """Write a run's row as it is in some phase."""
        await self.pool.execute(
            _INSERT_RUN,
            run_id, ACCOUNT, PERIOD, phase, selected,
        )  # fmt: skip

    async def plan_total(self, database: Database, lines: int, amount_minor: int, cap_minor: int) -> None:
        """Write what a plan added up to in dollars, past the rule that it comes while the plan is made."""
        rule = "ALTER TABLE run_totals {} TRIGGER run_totals_come_with_the_plan"
        await run_as_owner(database, rule.format("DISABLE"))
        await self.pool.execute(
            "INSERT INTO run_totals VALUES ($1, 'usd', $2, $3, $4)", RUN, lines, amount_minor, cap_minor
        )
        await run_as_owner(database, rule.format("ENABLE"))

    async def owe(
        self,
        customer: str,
        state: str,
        *,
        payment_intent: str | None = None,
        amount_minor: int = AMOUNT_MINOR,
        line: str = "base",
        run_id: str = RUN,
        payment_method: str = "pm_card_visa",
    ) -> str:
        """Write a line of the ledger in a state, count it as selected, and return its charge id."""
        charge_id = charge_id_of(customer, line)
        await self.pool.execute(
            _INSERT_CHARGE,
            charge_id, run_id, ACCOUNT, customer, PERIOD, line, amount_minor, state, payment_intent,
            payment_method,
        )  # fmt: skip
        await self.pool.execute("UPDATE billing_runs SET selected = selected + 1 WHERE run_id = $1", run_id)
        return charge_id

    async def prepare(
        self,
        customer: str,
        *,
        identity: str | None = None,
        version: int = 1,
        amount_minor: int = AMOUNT_MINOR,
        currency: str = "usd",
        card: str = "pm_card_visa",
    ) -> str:
        """Create an unconfirmed PaymentIntent at Stripe and return its id."""
        identity = identity or charge_id_of(customer)
        method = f"{card}_{customer.removeprefix('cus_')}"
        self.sim.seed(customer, method)
        key = key_for(Operation.CREATE, f"{identity}x{customer}", version)
        request = create_request(
            amount_minor=amount_minor, currency=currency, customer=customer, payment_method=method,
            charge_id=identity, create_key=key, period=PERIOD, line="base", run=RUN,  # type: ignore[arg-type]
        )  # fmt: skip
        answer = await self._post(Operation.CREATE, request, key)
        assert answer.payment_intent is not None, answer
        return answer.payment_intent.id

    async def pay(
        self,
        customer: str,
        *,
        identity: str | None = None,
        version: int = 1,
        amount_minor: int = AMOUNT_MINOR,
        currency: str = "usd",
        card: str = "pm_card_visa",
    ) -> str:
        """Create and confirm a PaymentIntent at Stripe and return its id."""
        payment_intent = await self.prepare(
            customer,
            identity=identity,
            version=version,
            amount_minor=amount_minor,
            currency=currency,
            card=card,
        )
        await self.confirm(customer, payment_intent, card=card)
        return payment_intent

    async def confirm(self, customer: str, payment_intent: str, *, card: str = "pm_card_visa") -> Answer:
        """Confirm a PaymentIntent at Stripe."""
        request = confirm_request(payment_intent, f"{card}_{customer.removeprefix('cus_')}")
        return await self._post(Operation.CONFIRM, request, key_for(Operation.CONFIRM, payment_intent, 1))

    async def cancel(self, payment_intent: str) -> None:
        """Cancel a PaymentIntent, as somebody does at Stripe."""
        await post(self.sim.url, f"/v1/payment_intents/{payment_intent}/cancel")

    async def refund(self, payment_intent: str, amount_minor: int) -> None:
        """Send money of a PaymentIntent back, as somebody does at Stripe."""
        await post(self.sim.url, "/v1/refunds", payment_intent=payment_intent, amount=amount_minor)

    async def note_refund(self, charge_id: str, payment_intent: str, amount_minor: int) -> None:
        """Write a refund into the ledger."""
        await self.pool.execute(
            _INSERT_REFUND, f"re_{uuid4().hex}", charge_id, ACCOUNT, payment_intent, amount_minor
        )

    async def _post(self, operation: Operation, request: Request, key: str) -> Answer:
        return await self.gateway.post(
            operation,
            account=StripeAccount(ACCOUNT, connected=False),
            path=request.path,
            parameters=request.parameters,
            key=key,  # type: ignore[arg-type]
        )


@asynccontextmanager
async def open_books(database: Database) -> AsyncIterator[Books]:
    """Yield empty books."""
    async with (
        running_sim() as sim,
        open_pool(database.app_url, connections=2) as pool,
        StripeGateway(api_key=API_KEY, api_base=sim.url) as gateway,
    ):
        yield Books(pool, gateway, sim)
