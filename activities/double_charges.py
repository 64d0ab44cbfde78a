"""Is anybody paid for more than once? Asked of Stripe before a run closes, while the ledger looks on.

Every paid PaymentIntent of a page is compared with the one that its charge's row names, so nothing is kept
but what disagrees: a million lines take no more memory than a hundred. A paid PaymentIntent that is not the
row's own, beside one that is, is a double charge. What else can be wrong is for `verify` to name.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from activities.differences import MONEY
from activities.first_error import first_error
from activities.gateway.findings import Page
from activities.gateway.requests import StripeAccount
from activities.ledger.audit import read_audited_lines, read_audited_run, read_charged_customers
from activities.ledger.database import Pool
from activities.limiter import Limiter
from activities.stripe_pages import PagesOfStripe, Unreadable, read_pages

MARGIN_SECONDS = 600  # how far Stripe's clock may be behind the ledger's
CHECK_SECONDS_MAX = 1_800.0  # a close waits no longer; a million lines take 400 s at 25 pages a second
PAGES_MIN = 10
CUSTOMERS_MAX = 20_000  # more than can be listed one by one in that time
CUSTOMERS_AT_ONCE = 8
FOUND_NAMED_MAX = 100


@dataclass(frozen=True, slots=True)
class DoubleCharges:
    """What the check came to. `not_checked` says why there is no answer, and then `found` proves nothing."""

    not_checked: str | None
    how: str
    requests: int
    found: dict[str, tuple[str, ...]]
    """The paid PaymentIntents of every charge that has more than one."""
    surprises: int
    """Charges that are paid at Stripe by one PaymentIntent, but not as the ledger has it: see `verify`."""
    paid_minor: dict[str, int] = field(default_factory=dict)
    """What Stripe lists as paid or on its way for the run's charges, by currency; whole only if checked."""

    @property
    def verdict(self) -> str:
        """Return `found`, `clean` or `not_checked`."""
        if self.found:
            return "found"
        return "clean" if self.not_checked is None else "not_checked"

    def as_json(self) -> dict[str, Any]:
        """Return it for the report; of many double charges the first hundred are named."""
        named = sorted(self.found.items())[:FOUND_NAMED_MAX]
        return {
            "verdict": self.verdict,
            "not_checked": self.not_checked,
            "how": self.how,
            "requests": self.requests,
            "found": len(self.found),
            "surprises": self.surprises,
            "charges": {charge_id: list(intents) for charge_id, intents in named},
        }


def not_checked(reason: str) -> DoubleCharges:
    """Return that nothing could be asked at all."""
    return DoubleCharges(not_checked=reason, how="not asked", requests=0, found={}, surprises=0)


async def find_double_charges(
    pool: Pool, stripe: PagesOfStripe, limiter: Limiter, account: StripeAccount, run_id: str
) -> DoubleCharges:
    """Look for charges of a run that are paid by more than one PaymentIntent. Only reads, under the limiter.

    The account's time window is scanned first. Where that takes more pages than the run has customers, the
    account has other business, and the customers are listed one by one instead. It takes 30 minutes at most.
    """
    run = await read_audited_run(pool, run_id)
    since = int(run.earliest_at.timestamp()) - MARGIN_SECONDS
    check = _Check(pool, stripe, limiter, account, run_id, since)
    reason: str | None = None
    limit = asyncio.timeout(CHECK_SECONDS_MAX)
    try:
        async with limit:
            await check.ask()
    except TimeoutError:
        if not limit.expired():
            raise  # the ledger's, which is no answer of Stripe's
        reason = f"it was not through after {CHECK_SECONDS_MAX:.0f} s and {check.requests} requests"
    except Unreadable as failure:
        reason = str(failure)
    return check.result(reason)


@dataclass(slots=True)
class _Check:
    """One check under way."""

    pool: Pool
    stripe: PagesOfStripe
    limiter: Limiter
    account: StripeAccount
    run_id: str
    since: int
    how: str = "the account's time window"
    requests: int = 0
    disagreeing: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    paid_minor: Counter[str] = field(default_factory=Counter)

    async def ask(self) -> None:
        customers = await read_charged_customers(self.pool, self.run_id, limit=CUSTOMERS_MAX + 1)
        if not customers:
            self.how = "nothing of this run was ever sent"
            return
        pages_max = max(PAGES_MIN, len(customers)) if len(customers) <= CUSTOMERS_MAX else None
        if not await self._scan(pages_max):
            self.how = "the customers, one by one"
            self.paid_minor.clear()  # of the pages that were read so far: all of them come again
            await self._list(customers)

    async def _scan(self, pages_max: int | None) -> bool:
        """Read the account's pages and return whether they were all."""
        pages = 0
        async for page in self._pages(None):
            pages += 1
            await self._compare(page)
            if page.has_more and pages == pages_max:
                return False
        return True

    async def _list(self, customers: Iterable[str]) -> None:
        waiting: Iterator[str] = iter(customers)

        async def list_next() -> None:
            for customer in waiting:
                async for page in self._pages(customer):
                    await self._compare(page)

        with first_error():
            async with asyncio.TaskGroup() as group:
                for _ in range(CUSTOMERS_AT_ONCE):
                    group.create_task(list_next())

    def _pages(self, customer: str | None) -> AsyncIterator[Page]:
        return read_pages(
            self.stripe,
            self.account,
            customer=customer,
            since_epoch_seconds=self.since,
            limiter=self.limiter,
        )

    async def _compare(self, page: Page) -> None:
        self.requests += 1
        paid = [one for one in page.payment_intents if one.charge_id is not None and one.status in MONEY]
        wanted = sorted({str(one.charge_id) for one in paid})
        lines = await read_audited_lines(self.pool, [self.run_id], wanted)
        own = {line.charge_id: line for line in lines}
        for one in paid:
            line = own.get(str(one.charge_id))
            if line is None:
                continue  # another run's, or nobody's
            self.paid_minor[one.currency] += one.amount_minor
            if line.payment_intent == one.id and line.state in MONEY:
                continue
            self.disagreeing[line.charge_id].add(one.id)
            if line.state in MONEY and line.payment_intent is not None:
                self.disagreeing[line.charge_id].add(line.payment_intent)

    def result(self, not_checked: str | None) -> DoubleCharges:
        found = {
            charge_id: tuple(sorted(intents))
            for charge_id, intents in self.disagreeing.items()
            if len(intents) > 1
        }
        return DoubleCharges(
            not_checked=not_checked,
            how=self.how,
            requests=self.requests,
            found=found,
            surprises=len(self.disagreeing) - len(found),
            paid_minor=dict(self.paid_minor),
        )
