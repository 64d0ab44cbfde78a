"""Three books of one run side by side: the ledger's, the spend-cap proxy's and Stripe's.

The proxy counts on its own, from what it saw on the wire, and neither reads the ledger's charges nor trusts
them. So three equal sums are three witnesses. Money on its way (a debit that is processing) counts as paid in
all three.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from activities.accounts import AccountParts
from activities.differences import MONEY
from activities.double_charges import MARGIN_SECONDS
from activities.gateway.findings import Page
from activities.ledger.audit import read_audited_lines, read_audited_run, read_charged_customers
from activities.ledger.database import Pool
from activities.ledger.runs import RunLedger
from activities.ledger.vault import VaultLedger
from activities.stripe_pages import Unreadable, read_pages

# The proxy's book follows its replies by a commit, and what a sweep finds out follows that.
PROXY_BEHIND_SECONDS_MAX = 5.0
_LOOK_AGAIN_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class ThreeTotals:
    """Minor units by currency. `proxy` is None for a run without a backstop, `stripe` if it was not asked.

    A run that has `sent` nothing needed no backstop, and had no key by which the proxy would know it.
    """

    ledger: Mapping[str, int]
    proxy: Mapping[str, int] | None
    stripe: Mapping[str, int] | None
    caps: Mapping[str, int]
    not_asked: str | None = None
    sent: bool = True

    @property
    def backstop(self) -> bool | None:
        """Whether the proxy stood behind it; None where there was nothing to stand behind."""
        if self.proxy is not None:
            return True
        return False if self.sent else None

    @property
    def agree(self) -> bool | None:
        """Whether all the books that could be read say the same; None where there is only one."""
        books = [_moved(book) for book in (self.ledger, self.proxy, self.stripe) if book is not None]
        return None if len(books) == 1 else all(book == books[0] for book in books)

    def as_json(self) -> dict[str, Any]:
        """Return it for results and reports."""
        currencies = sorted({*self.ledger, *(self.proxy or {}), *(self.stripe or {}), *self.caps})
        return {
            "backstop": self.backstop,
            "agree": self.agree,
            "not_asked": self.not_asked,
            "by_currency": {
                code: {
                    "ledger_minor": self.ledger.get(code, 0),
                    "proxy_minor": None if self.proxy is None else self.proxy.get(code, 0),
                    "stripe_minor": None if self.stripe is None else self.stripe.get(code, 0),
                    "cap_minor": self.caps.get(code),
                }
                for code in currencies
            },
        }


async def totals_side_by_side(
    pool: Pool,
    run_id: str,
    *,
    stripe: Mapping[str, int] | None,
    not_asked: str | None = None,
    wait_seconds: float = PROXY_BEHIND_SECONDS_MAX,
) -> ThreeTotals:
    """Return the three books of a run; Stripe's comes from whoever asked Stripe (`find_double_charges`).

    The proxy's book may be an instant behind: where it differs from the ledger's it is looked at again, for
    `wait_seconds` at most.
    """
    began = time.monotonic()
    while True:
        totals = await _read_totals(pool, run_id, stripe, not_asked)
        behind = totals.proxy is not None and _moved(totals.proxy) != _moved(totals.ledger)
        if not behind or time.monotonic() - began >= wait_seconds:
            return totals
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


async def ask_totals(
    pool: Pool, parts: AccountParts, run_id: str, *, pages_max: int, wait_seconds: float
) -> ThreeTotals:
    """Ask Stripe what it lists for a run, in so many pages at most, and return the three books."""
    since = int((await read_audited_run(pool, run_id)).earliest_at.timestamp()) - MARGIN_SECONDS
    paid: Counter[str] = Counter()
    pages, not_asked = 0, None
    try:
        async for page in read_pages(
            parts.gateway,
            parts.account,
            customer=None,
            since_epoch_seconds=since,
            limiter=parts.limiter,
        ):
            pages += 1
            if pages > pages_max:
                not_asked = (
                    f"the account has more than {pages_max} pages since then: see chargeonce verify {run_id}"
                )
                break
            await _count(pool, run_id, page, paid)
    except Unreadable as failure:
        not_asked = str(failure)
    return await totals_side_by_side(
        pool,
        run_id,
        stripe=paid if not_asked is None else None,
        not_asked=not_asked,
        wait_seconds=wait_seconds,
    )


async def _count(pool: Pool, run_id: str, page: Page, paid: Counter[str]) -> None:
    moved = [one for one in page.payment_intents if one.charge_id is not None and one.status in MONEY]
    lines = await read_audited_lines(pool, [run_id], sorted({str(one.charge_id) for one in moved}))
    own = {line.charge_id for line in lines}
    for one in moved:
        if one.charge_id in own:
            paid[one.currency] += one.amount_minor


async def _read_totals(
    pool: Pool, run_id: str, stripe: Mapping[str, int] | None, not_asked: str | None
) -> ThreeTotals:
    ledger: dict[str, int] = {}
    for row in await RunLedger(pool).amounts(run_id):
        if row["state"] in MONEY:
            ledger[row["currency"]] = ledger.get(row["currency"], 0) + row["amount_minor"]
    vault = VaultLedger(pool)
    standing = await vault.standing(run_id)
    proxy = None
    if await vault.has_charging_key(run_id):
        proxy = {row["currency"]: row["settled_minor"] + row["processing_minor"] for row in standing}
    caps = {row["currency"]: row["cap_minor"] for row in standing}
    sent = proxy is not None or bool(await read_charged_customers(pool, run_id, limit=1))
    return ThreeTotals(ledger, proxy, stripe, caps, not_asked, sent)


def _moved(book: Mapping[str, int]) -> dict[str, int]:
    return {code: amount for code, amount in book.items() if amount}
