"""Repairs that move no money: bring the ledger to Stripe's word, or take an unconfirmed leftover away.

Each goes by the path that the project has for it anyway, with that path's guards. Whether it ended the
difference, whoever asked for it sees by looking once more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from activities.accounts import AccountParts, Accounts
from activities.counted_limiter import CountedLimiter
from activities.ledger.charges import ChargeLedger
from activities.ledger.database import Pool
from activities.ledger.drift import Reconciliation
from activities.ledger.inbox import InboxLedger
from activities.ledger.money_back import MoneyBackLedger
from activities.merge import Merger, Subject
from activities.restore import restore_row
from activities.sweep import sweep_orphan
from workflows.domain.answer import PaymentIntent
from workflows.domain.drift import Drift, Repair
from workflows.domain.merge import About
from workflows.domain.recovery import PAID_STATUSES


class Repairer:
    """Applies repairs for one reconciliation."""

    def __init__(
        self, pool: Pool, accounts: Accounts, parts: AccountParts, reconciliation: Reconciliation
    ) -> None:
        self._pool = pool
        self._accounts = accounts
        self._limiter = CountedLimiter(parts.limiter)
        self._parts = replace(parts, limiter=self._limiter)
        self._who = reconciliation.who
        self._reason = f"reconciliation {reconciliation.reconciliation_id}"
        self._swept_requests = 0

    def take_requests(self) -> int:
        """Return how many requests repairs took since this was asked before."""
        return self._limiter.take()

    async def repair(
        self, charge_id: str, drifts: Sequence[Drift], shown: Mapping[str, PaymentIntent]
    ) -> dict[Drift, str]:
        """Apply what moves no money; return what became of each that was tried."""
        told: dict[Drift, str] = {}
        for drift in drifts:
            match drift.repair:
                case Repair.MERGE:
                    told[drift] = await self._merge(charge_id, drift, shown, About.PAYMENT)
                case Repair.SAVE_REFUNDS:
                    told[drift] = await self._save_refunds(charge_id, drift, shown)
                case Repair.RESTORE:
                    told[drift] = await self._restore(charge_id, shown)
                case Repair.CANCEL:
                    told[drift] = await self._sweep(charge_id, drift)
                case _:
                    continue
        return told

    async def _merge(
        self, charge_id: str, drift: Drift, shown: Mapping[str, PaymentIntent], about: About
    ) -> str:
        merger = Merger(
            self._parts,
            charges=ChargeLedger(self._pool),
            inbox=InboxLedger(self._pool),
            money_back=MoneyBackLedger(self._pool),
        )
        words = []
        for name in drift.payment_intents:
            intent = shown.get(name)
            if intent is not None and intent.status in PAID_STATUSES:
                look = await merger.look(Subject(name, charge_id, frozenset({about}), ()))
                words.append(look.reason)
        return "; ".join(words) or "Stripe shows nothing that could be recorded"

    async def _save_refunds(self, charge_id: str, drift: Drift, shown: Mapping[str, PaymentIntent]) -> str:
        return await self._merge(charge_id, drift, shown, About.REFUNDS)

    async def _restore(self, charge_id: str, shown: Mapping[str, PaymentIntent]) -> str:
        charge = await ChargeLedger(self._pool).read(charge_id)
        own = shown.get(charge.payment_intent or "")
        if own is None:
            return "Stripe does not show the charge's own PaymentIntent"
        restored = await restore_row(self._pool, charge, own, reason=self._reason, who=self._who)
        return restored.reason

    async def _sweep(self, charge_id: str, drift: Drift) -> str:
        swept = await sweep_orphan(
            self._pool, self._accounts, self._parts, charge_id, drift.subject, reason=self._reason
        )
        return f"{swept.end}: {swept.reason}"
