"""Every PaymentIntent that Stripe lists, page by page, and a page that fails asked for again.

What comes out is what Stripe showed, and nothing is concluded here: the comparison of the books and the check
for double charges both rest on it.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Protocol

from activities.gateway.findings import Page
from activities.gateway.requests import StripeAccount
from activities.limiter import Endpoint, Limiter

RETRIES_PER_REQUEST = 4
FIRST_PAUSE_SECONDS = 0.25


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


class Unreadable(Exception):
    """Stripe did not answer a question, not even when asked again."""


async def read_pages(
    stripe: PagesOfStripe,
    account: StripeAccount,
    *,
    customer: str | None,
    since_epoch_seconds: int,
    limiter: Limiter | None = None,
) -> AsyncIterator[Page]:
    """Yield good pages of a customer, or of the whole account, newest first, no PaymentIntent twice.

    A failed page is asked for again, at the oldest second that was read. With a limiter, each request waits
    for its turn among those that list.

    Raises:
        Unreadable: A page went on failing.
    """
    until: int | None = None
    shown_then: set[str] = set()
    failures = 0
    while True:
        failure: str | None = None
        await _take_turn(limiter)
        async for page in stripe.scan_payment_intents(
            account,
            customer=customer,
            created_from_epoch_seconds=since_epoch_seconds,
            created_to_epoch_seconds=until,
        ):
            failure = page.failure or (None if page.complete else "unreadable")
            if failure is None:
                yield _without(page, shown_then)
                oldest = min((one.created_epoch_seconds for one in page.payment_intents), default=until)
                if oldest != until:
                    until, failures = oldest, 0
                    shown_then.clear()
                shown_then |= {one.id for one in page.payment_intents if one.created_epoch_seconds == until}
                if page.has_more:
                    await _take_turn(limiter)
            elif limiter is not None and page.retry_after_seconds is not None:
                limiter.slow_down(Endpoint.LIST, retry_after_seconds=page.retry_after_seconds)
        if failure is None:
            return
        if failures == RETRIES_PER_REQUEST:
            raise Unreadable(f"a page of PaymentIntents: {failure}")
        await asyncio.sleep(FIRST_PAUSE_SECONDS * 2**failures)
        failures += 1


def _without(page: Page, shown: set[str]) -> Page:
    fresh = tuple(one for one in page.payment_intents if one.id not in shown)
    return page if len(fresh) == len(page.payment_intents) else replace(page, payment_intents=fresh)


async def _take_turn(limiter: Limiter | None) -> None:
    if limiter is not None:
        await limiter.acquire(Endpoint.LIST)
