"""What a restored ledger has to ask Stripe before anything is sent again (trace T4).

The ledger has forgotten creates and confirms that came after its backup, and past their keys' window Stripe
has forgotten them too: sent again, they would be new. So all that Stripe shows of the ledger's charges is
taken in first. What is paid is recorded. Of what is unconfirmed the charge's own stays; a charge that has
none adopts what its newest create made, or its next one would make again; everything else is canceled. So no
create is new while another PaymentIntent of its identity can be paid (I11), however late a confirm lands.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from activities.accounts import AccountParts, Accounts
from activities.ledger.audit import find_known_identities
from activities.ledger.charges import ChargeLedger, FirstSend
from activities.ledger.database import Pool
from activities.ledger.inbox import InboxLedger
from activities.ledger.money_back import MoneyBackLedger
from activities.ledger.restores import RestoreLedger
from activities.merge import LookEnd, Merger, Subject
from activities.send import request_for
from activities.stripe_pages import Unreadable, read_pages
from activities.sweep import SWEPT_STATUSES, SweepEnd, sweep_orphan
from activities.vault import READING
from workflows.contracts import RunKey
from workflows.domain.answer import PaymentIntent
from workflows.domain.charge import Charge
from workflows.domain.errors import StaleWrite
from workflows.domain.keys import Operation, canonical_parameters
from workflows.domain.merge import About
from workflows.domain.recovery import CANCELED_STATUS, PAID_STATUSES, ExpectedIntent, may_adopt
from workflows.domain.states import State

STRANGERS_NAMED_MAX = 20
REASON = "after a restore of the ledger"


@dataclass(slots=True)
class Cleaning:
    """What looking through one account came to. With `gaps` it has to be done again."""

    account: str
    payment_intents: int = 0
    looked_at: int = 0
    recorded: int = 0
    adopted: int = 0
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
        """Take in what Stripe shows of an account's charges; repeatable at any point.

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
        rows = await self._restores.charges_of(cleaning.account, identities)
        for one in alive:
            charge_id = str(one.charge_id)
            row = rows.get(charge_id)
            if charge_id not in known or (row is not None and row.state is State.SKIPPED):
                cleaning.strangers.append(one.id)
            elif row is not None and not _is_known(row, one):
                found[charge_id].append(one)

    async def _take_in(
        self, cleaning: Cleaning, parts: AccountParts, charge_id: str, intents: list[PaymentIntent]
    ) -> None:
        cleaning.looked_at += 1
        paid = [one for one in intents if one.status in PAID_STATUSES]
        for one in paid:
            if not await self._record(cleaning, parts, charge_id, one):
                return
        charge = await self._charges.read(charge_id)
        leftovers = [one for one in intents if one not in paid and one.id != charge.payment_intent]
        if leftovers and not paid and charge.payment_intent is None:
            try:
                kept = await self._adopt(charge, leftovers)
            except StaleWrite as moved:
                cleaning.gaps.append(f"charge {charge_id}: {moved}")
                return
            cleaning.adopted += kept is not None
            leftovers = [one for one in leftovers if one.id != kept]
        for one in leftovers:
            await self._sweep(cleaning, parts, charge_id, one)

    async def _record(
        self, cleaning: Cleaning, parts: AccountParts, charge_id: str, one: PaymentIntent
    ) -> bool:
        merger = Merger(
            parts,
            charges=self._charges,
            inbox=InboxLedger(self._pool),
            money_back=MoneyBackLedger(self._pool),
        )
        look = await merger.look(Subject(one.id, charge_id, frozenset({About.PAYMENT}), ()))
        if look.end is not LookEnd.MERGED:
            cleaning.gaps.append(f"charge {charge_id}: {one.id}: {look.reason}")
            return False
        cleaning.recorded += 1
        return True

    async def _adopt(self, charge: Charge, leftovers: list[PaymentIntent]) -> str | None:
        """Make the newest that fits the charge's create its own; return its id, None where none does.

        Raises:
            StaleWrite: The charge moved meanwhile.
        """
        if charge.state not in {State.PLANNED, State.CREATING} or not charge.payment_method:
            return None
        forgotten = charge.state is State.PLANNED
        expected = ExpectedIntent(
            charge_id=charge.charge_id,
            create_key=charge.key_of(Operation.CREATE, charge.create_version + forgotten),
            amount_minor=charge.amount_minor,
            currency=charge.currency,
            customer=charge.customer,
        )
        canceled = await self._charges.cancel_intended(charge.charge_id)
        fitting = [
            one
            for one in leftovers
            if one.status in SWEPT_STATUSES and may_adopt(one, expected, cancel_intended=canceled)
        ]
        if not fitting:
            return None
        kept = max(fitting, key=lambda one: (one.created_epoch_seconds, one.id))
        if forgotten:
            request = request_for(charge, Operation.CREATE)
            charge = await self._restores.remember_create(
                FirstSend(
                    charge=charge,
                    operation=Operation.CREATE,
                    path=request.path,
                    parameters=canonical_parameters(request.parameters),
                    reason=f"sent before the ledger was restored, and forgotten: {kept.id} shows it",
                ),
                created_epoch_seconds=kept.created_epoch_seconds,
            )
        await self._charges.settle(
            charge,
            State.PREPARED,
            payment_intent=kept.id,
            latest_charge=kept.latest_charge,
            reason=f"found {REASON} by identity, create key and frozen parameters",
            decision="adopted",
            create_key=expected.create_key,
        )
        return kept.id

    async def _sweep(
        self, cleaning: Cleaning, parts: AccountParts, charge_id: str, one: PaymentIntent
    ) -> None:
        swept = await sweep_orphan(
            self._pool,
            self._accounts,
            parts,
            charge_id,
            one.id,
            reason=f"{REASON} it is not the charge's own",
            restoring=True,
        )
        if swept.end in {SweepEnd.CANCELED, SweepEnd.PAID}:
            cleaning.canceled += swept.end is SweepEnd.CANCELED
            cleaning.recorded += swept.end is SweepEnd.PAID
        else:
            cleaning.gaps.append(f"charge {charge_id}: {one.id}: {swept.reason}")


def _is_known(row: Charge, one: PaymentIntent) -> bool:
    """Whether the row says what Stripe shows: it is the row's own, and recorded if it is paid."""
    if row.payment_intent != one.id:
        return False
    return one.status not in PAID_STATUSES or row.state is State.SUCCEEDED or row.state == one.status
