"""The first pass of a reconciliation: pages of the account's PaymentIntents, against the ledger's rows.

What agrees in everything is done with. All the rest is only suspected: a page shows one PaymentIntent at a
time, and a row may have moved since. Rows are read after their page, so whatever Stripe shows as paid has
been recorded or is in flight by then.
"""

import math
from dataclasses import dataclass

from activities.accounts import AccountParts
from activities.counted_limiter import CountedLimiter
from activities.differences import Seen
from activities.gateway.findings import Page
from activities.ledger.drift import Reconciliation
from activities.ledger.reconcile import ReconcileLedger
from activities.reconcile_judge import agrees, is_in_flight_as_shown, says_nothing
from activities.stripe_pages import Unreadable, read_pages, read_refunds
from workflows.domain.answer import PaymentIntent

MARGIN_SECONDS = 600  # how far Stripe's clock may be off the ledger's
CREATES_PER_SLICE = 5_000
PAGE_SIZE = 100
PAGES_MIN = 10  # before other business of the account makes a scan cost more than lists of customers
PAGES, REFUNDS = "pages", "refunds"  # what Stripe is asked for
SCAN, CUSTOMERS = "scan", "customers"


@dataclass(frozen=True, slots=True)
class Way:
    """How a reconciliation is gone about."""

    how: str
    slices: int
    charges: int
    customers: int


class Scanner:
    """Reads one account for one reconciliation."""

    def __init__(self, ledger: ReconcileLedger, parts: AccountParts, reconciliation: Reconciliation) -> None:
        self._ledger = ledger
        self._parts = parts
        self._limiter = CountedLimiter(parts.limiter)
        self._is = reconciliation
        self._id = reconciliation.reconciliation_id

    async def choose(self) -> Way:
        """Choose between lists of customers and a scan by the number of requests, and cut the scan."""
        charges, customers = await self._ledger.count_scope(self._id)
        how = CUSTOMERS if customers < math.ceil(charges / PAGE_SIZE) else SCAN
        await self._ledger.choose_way(self._id, how)
        slices = await self._ledger.cut_slices(
            self._id, creates_per_slice=CREATES_PER_SLICE, margin_seconds=MARGIN_SECONDS
        )
        how = (await self._ledger.read(self._id)).how or how
        return Way(how, slices if how == SCAN else 0, charges, customers)

    async def scan(self, slice_no: int, *, customers: int) -> None:
        """Read one slice. Where that takes more pages than there are customers, those are listed instead."""
        span = await self._ledger.read_slice(self._id, slice_no)
        if span.is_done or span.how == CUSTOMERS:
            return
        try:
            async for page in read_pages(
                self._parts.gateway,
                self._parts.account,
                customer=None,
                since_epoch_seconds=span.since_epoch_seconds,
                until_epoch_seconds=span.until_epoch_seconds,
                limiter=self._limiter,
            ):
                await self._compare(page)
                if page.has_more and await self._count_pages() > PAGES_MIN + customers:
                    await self._ledger.choose_way(self._id, CUSTOMERS)
                    return
        except Unreadable as failure:
            await self._ledger.note_gap(self._id, f"slice {slice_no} of the account's time", str(failure))
        finally:
            await self._count_pages()
        await self._ledger.finish_slice(self._id, slice_no)

    async def read_refunds(self) -> None:
        """Keep what went back since the span began."""
        since = int(self._is.since.timestamp()) - MARGIN_SECONDS
        try:
            returned = await read_refunds(
                self._parts.gateway, self._parts.account, since_epoch_seconds=since, limiter=self._limiter
            )
            await self._ledger.keep_refunds(self._id, returned)
        except Unreadable as failure:
            await self._ledger.note_gap(self._id, "refunds", str(failure))
        finally:
            await self._ledger.count_requests(self._id, REFUNDS, self._limiter.take())

    async def _count_pages(self) -> int:
        return await self._ledger.count_requests(self._id, PAGES, self._limiter.take())

    async def _compare(self, page: Page) -> None:
        ours = [one for one in page.payment_intents if one.charge_id is not None]
        lines = await self._ledger.lines_of(self._is.account, sorted({str(one.charge_id) for one in ours}))
        seen: list[str] = []
        suspects: dict[str, str | None] = {}
        for intent in ours:
            charge_id, one = str(intent.charge_id), seen_of(intent)
            scoped = lines.get(charge_id)
            if scoped is not None and self._is.run_id not in {None, scoped.line.run_id}:
                continue  # another run's, to be reconciled there
            if says_nothing(scoped, one):
                continue
            if scoped is not None and is_in_flight_as_shown(scoped, one):
                continue  # it will be asked about by itself, as all that is in flight
            if scoped is not None and agrees(scoped, one):
                seen.append(charge_id)
            else:
                suspects[charge_id] = intent.customer
        await self._ledger.mark_seen(self._id, seen)
        await self._ledger.mark_suspect(self._id, suspects, "does not agree at first sight")


def seen_of(intent: PaymentIntent, returned_minor: int = 0) -> Seen:
    """Return a PaymentIntent as the comparison takes it."""
    return Seen(
        intent.id, intent.status, intent.amount_minor, intent.currency, intent.customer, returned_minor
    )
