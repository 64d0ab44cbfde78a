"""What a restored ledger has to ask Stripe before anything is sent again (trace T4).

The ledger has forgotten creates and confirms that came after its backup, and past their keys' window Stripe
has forgotten them too: sent again, they would be new. So all that Stripe shows of charges that may still be
paid is taken in first: what is paid is recorded, and of several unconfirmed PaymentIntents all but one are
canceled.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from activities.accounts import AccountParts, Accounts
from activities.ledger.audit import find_known_identities
from activities.ledger.charges import ChargeLedger
from activities.ledger.database import Pool
from activities.ledger.inbox import InboxLedger
from activities.ledger.money_back import MoneyBackLedger
from activities.ledger.restores import RestoreLedger
from activities.merge import LookEnd, Merger, Subject
from activities.stripe_pages import Unreadable, read_pages
from activities.sweep import SweepEnd, sweep_orphan
from activities.vault import READING
from workflows.contracts import RunKey
from workflows.domain.answer import PaymentIntent
from workflows.domain.charge import Charge
from workflows.domain.merge import About
from workflows.domain.recovery import CANCELED_STATUS, PAID_STATUSES

STRANGERS_NAMED_MAX = 20


@dataclass(slots=True)
class Cleaning:
    """What looking through one account came to. With `gaps` it has to be done again."""

    account: str
    payment_intents: int = 0
    looked_at: int = 0
    recorded: int = 0
    canceled: int = 0
    strangers: list[str] = field(default_factory=list)
    """PaymentIntents, alive or paid, of charges that this ledger has lost: a run would make them anew."""
    gaps: list[str] = field(default_factory=list)


class RestoreCleaner:
    """Looks through accounts after a restore."""

    def __init__(self, pool: Pool, accounts: Accounts) -> None:
        self._pool = pool
        self._accounts = accounts
        self._restores = RestoreLedger(pool)
        self._charges = ChargeLedger(pool)

    async def clean(
        self, account: str, *, since: datetime, on_page: Callable[[int], None] = lambda _: None
    ) -> Cleaning:
        """Take in what Stripe shows of an account's charges that may still be paid; repeatable at any point.

        Args:
            account: Whose.
            since: From before the oldest PaymentIntent that the ledger may have forgotten.
            on_page: Told how many PaymentIntents were read so far.
        """
        parts = await self._accounts.of(RunKey(run_id="", account=account), READING)
        cleaning = Cleaning(account)
        found: defaultdict[str, list[PaymentIntent]] = defaultdict(list)
        try:
            async for page in read_pages(
                parts.gateway,
                parts.account,
                customer=None,
                since_epoch_seconds=int(since.timestamp()),
                limiter=parts.limiter,
            ):
                cleaning.payment_intents += len(page.payment_intents)
                await self._sort(cleaning, page.payment_intents, found)
                on_page(cleaning.payment_intents)
        except Unreadable as failure:
            cleaning.gaps.append(str(failure))
            return cleaning
        for charge_id, intents in found.items():
            await self._take_in(cleaning, parts, charge_id, intents)
        return cleaning

    async def _sort(
        self,
        cleaning: Cleaning,
        intents: tuple[PaymentIntent, ...],
        found: defaultdict[str, list[PaymentIntent]],
    ) -> None:
        alive = [one for one in intents if one.charge_id is not None and one.status != CANCELED_STATUS]
        identities = sorted({str(one.charge_id) for one in alive})
        known = await find_known_identities(self._pool, identities)
        to_be_paid = await self._restores.open_charges(cleaning.account, identities)
        for one in alive:
            charge_id = str(one.charge_id)
            if charge_id not in known:
                cleaning.strangers.append(one.id)
            elif charge_id in to_be_paid:
                found[charge_id].append(one)

    async def _take_in(
        self, cleaning: Cleaning, parts: AccountParts, charge_id: str, intents: list[PaymentIntent]
    ) -> None:
        cleaning.looked_at += 1
        charge = await self._charges.read(charge_id)
        paid = [one for one in intents if one.status in PAID_STATUSES]
        if paid:
            for one in paid:
                await self._record(cleaning, parts, charge, one)
            return
        for one in _all_but_one(charge, intents):
            reason = "after a restore of the ledger, all but one are canceled"
            swept = await sweep_orphan(
                self._pool, self._accounts, parts, charge_id, one.id, reason=reason, restoring=True
            )
            if swept.end in {SweepEnd.CANCELED, SweepEnd.PAID}:
                cleaning.canceled += swept.end is SweepEnd.CANCELED
                cleaning.recorded += swept.end is SweepEnd.PAID
            else:
                cleaning.gaps.append(f"charge {charge_id}: {one.id}: {swept.reason}")

    async def _record(
        self, cleaning: Cleaning, parts: AccountParts, charge: Charge, one: PaymentIntent
    ) -> None:
        merger = Merger(
            parts,
            charges=self._charges,
            inbox=InboxLedger(self._pool),
            money_back=MoneyBackLedger(self._pool),
        )
        look = await merger.look(Subject(one.id, charge.charge_id, frozenset({About.PAYMENT}), ()))
        if look.end is LookEnd.MERGED:
            cleaning.recorded += 1
        else:
            cleaning.gaps.append(f"charge {charge.charge_id}: {one.id}: {look.reason}")


def _all_but_one(charge: Charge, intents: list[PaymentIntent]) -> list[PaymentIntent]:
    """Return what is canceled: the charge's own stays, else the newest, which its create would bring back."""
    ordered = sorted(
        intents, key=lambda one: (one.id != charge.payment_intent, -one.created_epoch_seconds, one.id)
    )
    return ordered[1:]
