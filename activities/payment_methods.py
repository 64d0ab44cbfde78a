"""How customers pay, asked of Stripe at plan time: the invoice default, else the only card attached.

A customer is asked about once, however many lines there are. Each request takes its turn at the account's
limiter, and many are on the way at once, so that only the rate decides how long this takes.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from activities.accounts import AccountParts
from activities.first_error import first_error
from activities.gateway.findings import PaymentMethodFinding, PaymentMethodKind
from activities.ledger.planning import FoundMethod, PlanWriter
from activities.limiter import Endpoint
from workflows.domain.breaker import describe_credentials
from workflows.domain.errors import CredentialsRefused, NothingWasSent
from workflows.domain.skips import SkipReason

LOOKUPS_AT_ONCE_MAX = 64
LOOKUP_TRIES_MAX = 5
BACKOFF_SECONDS = 0.2  # after an answer that says nothing, doubled each time
PAGE_CUSTOMERS = 500

_SKIP_REASONS = {
    PaymentMethodKind.NONE: SkipReason.NO_PAYMENT_METHOD,
    PaymentMethodKind.SEVERAL: SkipReason.SEVERAL_PAYMENT_METHODS,
    PaymentMethodKind.CUSTOMER_DELETED: SkipReason.CUSTOMER_DELETED,
    PaymentMethodKind.CUSTOMER_MISSING: SkipReason.CUSTOMER_MISSING,
    PaymentMethodKind.REFUSED: SkipReason.CAN_NOT_BE_BILLED,
}


@dataclass(frozen=True, slots=True)
class Lookups:
    """How much Stripe was asked: `requests` counts a second one where a customer has no default."""

    customers: int = 0
    requests: int = 0


class PaymentMethods:
    """Finds the payment methods that a source left out."""

    def __init__(self, parts: AccountParts) -> None:
        self._parts = parts
        self._requests = 0

    async def resolve(self, writer: PlanWriter) -> Lookups:
        """Ask about every customer whose payment method is missing, and stage what was found.

        Raises:
            CredentialsRefused: The key does not open what has to be asked.
            NothingWasSent: Stripe does not say, several times over; the planner is to come again later.
        """
        customers = await writer.find_missing()
        found: list[FoundMethod] = []
        workers = min(LOOKUPS_AT_ONCE_MAX, self._parts.requests_at_once, customers)
        queue: asyncio.Queue[str | None] = asyncio.Queue(maxsize=workers)

        async def work() -> None:
            while (customer := await queue.get()) is not None:
                method = await self.find(customer)
                found.append(method)  # looked up only now: meanwhile the list may have been staged

        with first_error():
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(work())
                async for page in _pages(writer):
                    for customer in page:
                        await queue.put(customer)
                    staged, found = found, []
                    await writer.resolve(staged)
                for _ in range(workers):
                    await queue.put(None)
        await writer.resolve(found)
        return Lookups(customers, self._requests)

    async def find(self, customer: str) -> FoundMethod:
        """Return how one customer pays, or why they can't.

        Raises:
            CredentialsRefused: The key does not open what has to be asked.
            NothingWasSent: Stripe does not say.
        """
        gateway, account = self._parts.gateway, self._parts.account
        return await self._find(
            customer, lambda: gateway.payment_method_of(account, customer, turn=self._turn)
        )

    async def find_attached(self, customer: str, payment_method: str) -> FoundMethod:
        """Return this payment method, of whatever type, if the customer still has it. Raises as `find`."""
        gateway, account = self._parts.gateway, self._parts.account
        return await self._find(
            customer, lambda: gateway.attached_method(account, customer, payment_method, turn=self._turn)
        )

    async def _find(self, customer: str, ask: Callable[[], Awaitable[PaymentMethodFinding]]) -> FoundMethod:
        for retry in range(LOOKUP_TRIES_MAX):
            finding = await ask()
            if finding.payment_method is not None:
                return FoundMethod(customer, finding.payment_method, None)
            if finding.kind is not PaymentMethodKind.UNKNOWN:
                # One customer that can't be asked about must not hold up everybody else's plan.
                detail = finding.reason if finding.kind is PaymentMethodKind.REFUSED else None
                return FoundMethod(customer, None, _SKIP_REASONS[finding.kind], detail)
            if finding.refusal is not None:
                why = describe_credentials(finding.refusal)
                raise CredentialsRefused(f"how {customer} pays can't be asked: {why}")
            if finding.rate_limited:
                self._parts.limiter.slow_down(
                    Endpoint.CUSTOMERS,
                    retry_after_seconds=finding.retry_after_seconds,
                    reason=finding.rate_limited_reason,
                )
            else:
                await asyncio.sleep(BACKOFF_SECONDS * 2**retry)
        raise NothingWasSent(f"Stripe does not say how {customer} pays: {finding.reason}")

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        await self._parts.limiter.acquire(Endpoint.CUSTOMERS)
        async with self._parts.places:
            self._requests += 1
            yield


async def _pages(writer: PlanWriter) -> AsyncIterator[tuple[str, ...]]:
    page = await writer.missing(0, limit=PAGE_CUSTOMERS)
    while page.customers:
        yield page.customers
        page = await writer.missing(page.last, limit=PAGE_CUSTOMERS)
