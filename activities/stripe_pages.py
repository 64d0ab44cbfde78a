"""Everything that Stripe lists of one kind, page by page, and a page that fails asked for again.

What comes out is what Stripe showed, and nothing is concluded here: the comparison of the books, the check
for double charges and reconciliation rest on it.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from activities.gateway.balance_findings import BalancePage, PayoutPage
from activities.gateway.findings import EventPage, Page, RefundPage
from activities.gateway.requests import StripeAccount
from activities.limiter import Endpoint, Limiter
from workflows.domain.webhook_event import WebhookEvent

RETRIES_PER_REQUEST = 4
FIRST_PAUSE_SECONDS = 0.25


class _Listed(Protocol):
    """What pages of all kinds have in common."""

    @property
    def complete(self) -> bool: ...
    @property
    def has_more(self) -> bool: ...
    @property
    def failure(self) -> str | None: ...
    @property
    def retry_after_seconds(self) -> float | None: ...


P = TypeVar("P", bound=_Listed)


class PagesOfStripe(Protocol):
    """What is asked of Stripe."""

    def scan_payment_intents(
        self,
        account: StripeAccount,
        *,
        customer: str | None,
        created_from_epoch_seconds: int,
        created_to_epoch_seconds: int | None,
    ) -> AsyncIterator[Page]:
        """Yield pages, newest first, until the last or a failed one."""


class RefundsOfStripe(Protocol):
    """What is asked of Stripe about refunds."""

    def scan_refunds(
        self,
        account: StripeAccount,
        *,
        created_from_epoch_seconds: int,
        created_to_epoch_seconds: int | None,
    ) -> AsyncIterator[RefundPage]:
        """Yield pages, newest first, until the last or a failed one."""


class EventsOfStripe(Protocol):
    """What is asked of Stripe about what happened."""

    def list_events(
        self,
        account: StripeAccount,
        *,
        types: Sequence[str],
        created_from_epoch_seconds: int,
        created_to_epoch_seconds: int | None,
    ) -> AsyncIterator[EventPage]:
        """Yield pages, newest first, until the last or a failed one."""


class BalanceOfStripe(Protocol):
    """What is asked of Stripe about an account's balance."""

    def scan_transactions(
        self,
        account: StripeAccount,
        *,
        created_from_epoch_seconds: int | None,
        created_to_epoch_seconds: int | None,
        payout: str | None = None,
    ) -> AsyncIterator[BalancePage]:
        """Yield pages of a span, or of a payout, newest first, until the last or a failed one."""

    def scan_payouts(
        self,
        account: StripeAccount,
        *,
        created_from_epoch_seconds: int,
        created_to_epoch_seconds: int | None,
    ) -> AsyncIterator[PayoutPage]:
        """Yield pages, newest first, until the last or a failed one."""


class Unreadable(Exception):
    """Stripe did not answer a question, not even when asked again."""


async def read_pages(
    stripe: PagesOfStripe,
    account: StripeAccount,
    *,
    customer: str | None,
    since_epoch_seconds: int,
    until_epoch_seconds: int | None = None,
    limiter: Limiter | None = None,
) -> AsyncIterator[Page]:
    """Yield good pages of a customer, or of the whole account, newest first, no PaymentIntent twice.

    A failed page is asked for again, at the oldest second that was read. With a limiter, each request waits
    for its turn among those that list. The span includes both bounds, in whole seconds.

    Raises:
        Unreadable: A page went on failing.
    """

    def scan(until: int | None) -> AsyncIterator[Page]:
        return stripe.scan_payment_intents(
            account,
            customer=customer,
            created_from_epoch_seconds=since_epoch_seconds,
            created_to_epoch_seconds=until,
        )

    def created(page: Page) -> Mapping[str, int]:
        return {one.id: one.created_epoch_seconds for one in page.payment_intents}

    async for page, shown in _read_all("PaymentIntents", scan, created, until_epoch_seconds, limiter):
        yield _without(page, shown)


async def read_refunds(
    stripe: RefundsOfStripe,
    account: StripeAccount,
    *,
    since_epoch_seconds: int,
    limiter: Limiter | None = None,
    on_page: Callable[[], None] = lambda: None,
) -> dict[str, int]:
    """Return what went back of each PaymentIntent by refunds made since a moment, in minor units.

    What is on its way back counts; what failed or was canceled does not.

    Raises:
        Unreadable: A page went on failing.
    """

    def scan(until: int | None) -> AsyncIterator[RefundPage]:
        return stripe.scan_refunds(
            account, created_from_epoch_seconds=since_epoch_seconds, created_to_epoch_seconds=until
        )

    def created(page: RefundPage) -> Mapping[str, int]:
        return {one.refund_id: one.created_epoch_seconds for one in page.refunds}

    returned: Counter[str] = Counter()
    async for page, shown in _read_all("refunds", scan, created, None, limiter):
        on_page()
        for one in page.refunds:
            if one.refund_id not in shown and one.returns_minor:
                returned[one.payment_intent] += one.returns_minor
    return dict(returned)


async def read_events(
    stripe: EventsOfStripe,
    account: StripeAccount,
    *,
    types: Sequence[str],
    since_epoch_seconds: int,
    until_epoch_seconds: int,
    limiter: Limiter | None = None,
) -> AsyncIterator[tuple[WebhookEvent, ...]]:
    """Yield the account's events of some types, newest first, page by page, none twice.

    The span includes both bounds, in whole seconds.

    Raises:
        Unreadable: A page went on failing.
    """

    def scan(until: int | None) -> AsyncIterator[EventPage]:
        return stripe.list_events(
            account,
            types=types,
            created_from_epoch_seconds=since_epoch_seconds,
            created_to_epoch_seconds=until,
        )

    def created(page: EventPage) -> Mapping[str, int]:
        return {one.event_id: one.created_epoch_seconds for one in page.events}

    async for page, shown in _read_all("events", scan, created, until_epoch_seconds, limiter):
        yield tuple(one for one in page.events if one.event_id not in shown)


async def read_balance(
    stripe: BalanceOfStripe,
    account: StripeAccount,
    *,
    since_epoch_seconds: int | None = None,
    until_epoch_seconds: int | None = None,
    payout: str | None = None,
    limiter: Limiter | None = None,
) -> AsyncIterator[BalancePage]:
    """Yield good pages of what moved on an account's balance in a span, or of a payout, newest first.

    After a page that failed, one may show again what was shown. Raises Unreadable: a page went on failing.
    """

    def scan(until: int | None) -> AsyncIterator[BalancePage]:
        return stripe.scan_transactions(
            account,
            created_from_epoch_seconds=since_epoch_seconds,
            created_to_epoch_seconds=until,
            payout=payout,
        )

    pages = _read_all("balance transactions", scan, _created, until_epoch_seconds, limiter)
    async for page, _shown in pages:
        yield page


async def read_payouts(
    stripe: BalanceOfStripe,
    account: StripeAccount,
    *,
    since_epoch_seconds: int,
    until_epoch_seconds: int | None,
    limiter: Limiter | None = None,
) -> AsyncIterator[PayoutPage]:
    """Yield good pages of an account's payouts, newest first; see `read_balance`.

    Raises:
        Unreadable: A page went on failing.
    """

    def scan(until: int | None) -> AsyncIterator[PayoutPage]:
        return stripe.scan_payouts(
            account, created_from_epoch_seconds=since_epoch_seconds, created_to_epoch_seconds=until
        )

    async for page, _shown in _read_all("payouts", scan, _created, until_epoch_seconds, limiter):
        yield page


def _created(page: BalancePage | PayoutPage) -> Mapping[str, int]:
    return dict(page.created)


async def _read_all(
    noun: str,
    scan: Callable[[int | None], AsyncIterator[P]],
    created: Callable[[P], Mapping[str, int]],
    until: int | None,
    limiter: Limiter | None,
) -> AsyncIterator[tuple[P, frozenset[str]]]:
    """Yield good pages, each with the ids that pages before it have shown."""
    shown_then: set[str] = set()
    failures = 0
    while True:
        failure: str | None = None
        await _take_turn(limiter)
        async for page in scan(until):
            failure = page.failure or (None if page.complete else "unreadable")
            if failure is None:
                yield page, frozenset(shown_then)
                times = created(page)
                oldest = min(times.values(), default=until)
                if oldest != until:
                    until, failures = oldest, 0
                    shown_then.clear()
                shown_then |= {name for name, second in times.items() if second == until}
                if page.has_more:
                    await _take_turn(limiter)
            elif limiter is not None and page.retry_after_seconds is not None:
                limiter.slow_down(Endpoint.LIST, retry_after_seconds=page.retry_after_seconds)
        if failure is None:
            return
        if failures == RETRIES_PER_REQUEST:
            raise Unreadable(f"a page of {noun}: {failure}")
        await asyncio.sleep(FIRST_PAUSE_SECONDS * 2**failures)
        failures += 1


def _without(page: Page, shown: frozenset[str]) -> Page:
    fresh = tuple(one for one in page.payment_intents if one.id not in shown)
    return page if len(fresh) == len(page.payment_intents) else replace(page, payment_intents=fresh)


async def _take_turn(limiter: Limiter | None) -> None:
    if limiter is not None:
        await limiter.acquire(Endpoint.LIST)
