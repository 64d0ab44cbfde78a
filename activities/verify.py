"""Is what the ledger says what Stripe says? Every difference, by name.

Stripe is read first and the ledger after it, so whatever Stripe shows as paid has been recorded or is in
flight by the time its row is read. A line that still seems to disagree, and could have moved in between, is
looked at again on both sides until its row holds still; only then is it called a difference.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from activities import stripe_pages
from activities.differences import (
    IN_FLIGHT,
    MONEY,
    NOT_STARTED,
    SEVERITY,
    Difference,
    Kind,
    Seen,
    compare,
    stranger,
)
from activities.gateway.requests import StripeAccount
from activities.ledger.audit import (
    AuditedLine,
    AuditedRun,
    find_known_identities,
    read_audited_lines,
    read_audited_run,
    read_audited_runs,
    read_runs_in_order,
    stream_audited_lines,
)
from activities.ledger.database import Pool
from activities.ledger.outcomes import reasons_of_outcomes
from activities.stripe_pages import PagesOfStripe, RefundsOfStripe, Unreadable, read_pages, read_refunds
from activities.verify_report import VerifyReport
from workflows.domain.answer import Lookup, PaymentIntent
from workflows.domain.errors import RefusedToStart
from workflows.domain.money_back import Found, Refund

__all__ = ["OnProgress", "StripeBooks", "VerifyReport", "verify_account", "verify_run"]

MARGIN_SECONDS = 600  # how far Stripe's clock may be behind the ledger's
RETRIEVES_AT_ONCE = 8
LOOKS_MAX = 5
LINES_PER_PROGRESS = 1_000

OnProgress = Callable[[int, int], None]
"""Told how many PaymentIntents were read and how many lines were compared so far."""


class StripeBooks(PagesOfStripe, RefundsOfStripe, Protocol):
    """What is asked of Stripe: whose key it is, pages of PaymentIntents and refunds, and single ones."""

    async def retrieve_account(self) -> str:
        """Return the id of the account that the API key belongs to."""

    async def retrieve_payment_intent(
        self, account: StripeAccount, payment_intent_id: str, *, started_epoch_seconds: float
    ) -> Lookup:
        """Return one PaymentIntent as it is now, or say that it could not be read."""

    async def list_refunds(self, account: StripeAccount, payment_intent_id: str) -> Found[Refund]:
        """Return all refunds of a PaymentIntent, or say that they could not be read."""


async def verify_run(
    pool: Pool, stripe: StripeBooks, run_id: str, *, on_progress: OnProgress | None = None
) -> VerifyReport:
    """Compare every charge of a run with every PaymentIntent that Stripe lists for it.

    Raises:
        RefusedToStart: There is no such run, or Stripe does not say whose key this is.
    """
    return await _verify(pool, stripe, {run_id: await read_audited_run(pool, run_id)}, on_progress)


async def verify_account(
    pool: Pool,
    stripe: StripeBooks,
    account: str,
    *,
    since: datetime | None = None,
    on_progress: OnProgress | None = None,
) -> VerifyReport:
    """Compare every charge of an account's runs with every PaymentIntent that Stripe lists for it.

    `since` leaves out runs that were locked before. Memory grows by some 500 bytes a PaymentIntent.

    Raises:
        RefusedToStart: The account has no run since then, or Stripe does not say whose key this is.
    """
    runs = await read_audited_runs(pool, await read_runs_in_order(pool, account, since=since))
    if not runs:
        raise RefusedToStart(
            f"the ledger has no run of account {account!r} to verify: see `chargeonce run list`"
        )
    return await _verify(pool, stripe, runs, on_progress)


async def _verify(
    pool: Pool, stripe: StripeBooks, runs: Mapping[str, AuditedRun], on_progress: OnProgress | None
) -> VerifyReport:
    own_account = await stripe.retrieve_account()
    [account_id] = {run.account for run in runs.values()}
    account = StripeAccount(account_id, connected=account_id != own_account)
    verification = _Verification(pool, stripe, runs, account, on_progress or _say_nothing)
    await verification.read_stripe()
    await verification.compare_ledger()
    await verification.look_again()
    await verification.name_strangers()
    not_paid = await reasons_of_outcomes(pool, list(runs))
    # Counted after everything else, so that the counts are those of the newest moment.
    return verification.report(await read_audited_runs(pool, list(runs)), not_paid)


def _say_nothing(_payment_intents: int, _lines: int) -> None:
    return None


@dataclass(slots=True)
class _Verification:
    """One comparison under way."""

    pool: Pool
    stripe: StripeBooks
    runs: Mapping[str, AuditedRun]
    account: StripeAccount
    on_progress: OnProgress
    seen: dict[str, tuple[Seen, ...]] = field(default_factory=dict)
    """Every PaymentIntent with our mark by identity; an identity goes when its line has been compared."""
    returned: dict[str, int] = field(default_factory=dict)
    """What went back by PaymentIntent, of whoever."""
    suspects: dict[str, tuple[AuditedLine, tuple[Seen, ...]]] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)
    pages: int = 0
    refund_pages: int = 0
    payment_intents: int = 0
    payment_intents_of_run: int = 0
    retrieved: int = 0
    lines: int = 0
    leftovers: int = 0
    behind: int = 0
    states: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    money_ledger: Counter[str] = field(default_factory=Counter)
    money_stripe: Counter[str] = field(default_factory=Counter)

    async def read_stripe(self) -> None:
        """Read every page from shortly before the runs until now, and what went back after that."""
        since = int(min(run.earliest_at for run in self.runs.values()).timestamp()) - MARGIN_SECONDS
        try:
            async for page in read_pages(self.stripe, self.account, customer=None, since_epoch_seconds=since):
                self.pages += 1
                self.payment_intents += len(page.payment_intents)
                for intent in page.payment_intents:
                    if intent.charge_id is not None:
                        self.seen[intent.charge_id] = _with(
                            self.seen.get(intent.charge_id, ()), _seen(intent)
                        )
                self.on_progress(self.payment_intents, self.lines)
            self.returned = await read_refunds(
                self.stripe, self.account, since_epoch_seconds=since, on_page=self._count_refund_page
            )
        except Unreadable as failure:
            self.incomplete.append(str(failure))

    def _count_refund_page(self) -> None:
        self.refund_pages += 1

    async def compare_ledger(self) -> None:
        """Stream the ledger's lines past what Stripe showed."""
        async for line in stream_audited_lines(self.pool, list(self.runs)):
            seen = self.seen.pop(line.charge_id, ())
            self._compare(line, tuple(self._with_returned(one) for one in seen), last_look=False)
            self.lines += 1
            if self.lines % LINES_PER_PROGRESS == 0:
                self.on_progress(self.payment_intents, self.lines)
        self.on_progress(self.payment_intents, self.lines)

    def _with_returned(self, one: Seen) -> Seen:
        returned_minor = self.returned.get(one.payment_intent, 0)
        return one._replace(returned_minor=returned_minor) if returned_minor else one

    def _compare(self, line: AuditedLine, seen: tuple[Seen, ...], *, last_look: bool) -> None:
        found = compare(line, seen, closed=self.runs[line.run_id].phase == "closed")
        if found.needs_second_look and not last_look:
            self.suspects[line.charge_id] = (line, seen)
            return
        self.differences += found.differences
        self.leftovers += found.leftovers
        self.behind += found.behind
        self.states[line.state] += 1
        self.payment_intents_of_run += len(seen)
        if line.state in MONEY:
            self.money_ledger[line.currency] += line.amount_minor
        for one in found.paid:
            self.statuses[one.status] += 1
            self.money_stripe[one.currency] += one.amount_minor

    async def look_again(self) -> None:
        """Read suspects on both sides until their rows hold still."""
        for _ in range(LOOKS_MAX):
            if not self.suspects or self.incomplete:
                break
            suspects, self.suspects = self.suspects, {}
            fresh = await self._retrieve_all(suspects)
            for line in await read_audited_lines(self.pool, list(self.runs), list(suspects)):
                before, seen_before = suspects[line.charge_id]
                if line.charge_id not in fresh:
                    self.suspects[line.charge_id] = (line, seen_before)
                else:
                    self._compare(line, fresh[line.charge_id], last_look=line == before)
        if self.suspects:
            first = next(iter(self.suspects))
            self.incomplete.append(
                f"{len(self.suspects)} charges could not be looked at again, {first} first"
            )

    async def _retrieve_all(
        self, suspects: dict[str, tuple[AuditedLine, tuple[Seen, ...]]]
    ) -> dict[str, tuple[Seen, ...]]:
        """Return what Stripe says now; after the first failure nothing more is asked."""
        slots = asyncio.Semaphore(RETRIEVES_AT_ONCE)
        fresh: dict[str, tuple[Seen, ...]] = {}

        async def retrieve(line: AuditedLine, before: tuple[Seen, ...]) -> None:
            wanted = {one.payment_intent for one in before}
            if line.payment_intent is not None:
                wanted.add(line.payment_intent)
            async with slots:
                if self.incomplete:
                    return
                try:
                    found = [await self._retrieve(line, one) for one in sorted(wanted)]
                except Unreadable as failure:
                    self.incomplete.append(str(failure))
                    return
            # A PaymentIntent of another identity pays nothing here, whatever the row says.
            ours = [one for one in found if one is not None and one.charge_id in {None, line.charge_id}]
            try:
                fresh[line.charge_id] = tuple([await self._look_at_refunds(_seen(one)) for one in ours])
            except Unreadable as failure:
                self.incomplete.append(str(failure))

        await asyncio.gather(*(retrieve(line, before) for line, before in suspects.values()))
        return fresh

    async def _retrieve(self, line: AuditedLine, payment_intent: str) -> PaymentIntent | None:
        """Return the PaymentIntent, or None where Stripe's list of its customer does not have it either."""
        for failures in range(stripe_pages.RETRIES_PER_REQUEST):
            self.retrieved += 1
            lookup = await self.stripe.retrieve_payment_intent(
                self.account, payment_intent, started_epoch_seconds=0.0
            )
            if lookup.complete:
                return lookup.payment_intents[0]
            if "HTTP 404" in (lookup.failure or ""):
                break
            await asyncio.sleep(stripe_pages.FIRST_PAUSE_SECONDS * 2**failures)
        # "Not found" may be the wrong account's word; a complete list of the customer is evidence.
        async for page in read_pages(
            self.stripe, self.account, customer=line.customer, since_epoch_seconds=0
        ):
            for intent in page.payment_intents:
                if intent.id == payment_intent:
                    return intent
        return None

    async def _look_at_refunds(self, one: Seen) -> Seen:
        """Return it with what went back of it by now; nothing can go back of what was not paid."""
        if one.status not in MONEY:
            return one
        for failures in range(stripe_pages.RETRIES_PER_REQUEST):
            found = await self.stripe.list_refunds(self.account, one.payment_intent)
            if found.failure is None:
                return one._replace(returned_minor=sum(refund.returns_minor for refund in found.items))
            await asyncio.sleep(stripe_pages.FIRST_PAUSE_SECONDS * 2**failures)
        raise Unreadable(f"the refunds of {one.payment_intent}: {found.failure}")

    async def name_strangers(self) -> None:
        """Name what carries our mark and is in no run. What other runs own is theirs to verify."""
        known = await find_known_identities(self.pool, list(self.seen))
        for charge_id in self.seen.keys() - known:
            self.differences += stranger(
                charge_id, [self._with_returned(one) for one in self.seen[charge_id]]
            )

    def report(self, runs: Mapping[str, AuditedRun], not_paid: Sequence[Mapping[str, Any]]) -> VerifyReport:
        """Return what it came to."""
        self.differences += [
            Difference(
                kind=Kind.COUNTS,
                charge_id=None,
                customer=None,
                line=run.run_id,
                payment_intents=(),
                ledger_says=f"{run.selected} lines were selected, but {run.accounted} are accounted for",
                stripe_says="nothing about counts",
            )
            for run in runs.values()
            if run.selected is not None and run.accounted != run.selected
        ]
        return VerifyReport(
            runs=tuple((run.run_id, run.phase) for run in runs.values()),
            account=self.account.id,
            lines_selected=sum(run.selected or 0 for run in runs.values()),
            lines_compared=self.lines,
            lines_paid=self.states["succeeded"],
            lines_processing=self.states["processing"],
            not_paid=tuple(not_paid),
            open_charges={
                state: self.states[state] for state in sorted(IN_FLIGHT | NOT_STARTED) if self.states[state]
            },
            pages_read=self.pages,
            refund_pages_read=self.refund_pages,
            payment_intents_read=self.payment_intents,
            payment_intents_of_run=self.payment_intents_of_run,
            payment_intents_retrieved=self.retrieved,
            succeeded_at_stripe=self.statuses["succeeded"],
            processing_at_stripe=self.statuses["processing"],
            money_ledger=dict(self.money_ledger),
            money_stripe=dict(self.money_stripe),
            leftovers=self.leftovers,
            behind=self.behind,
            differences=tuple(sorted(self.differences, key=_severity)),
            incomplete=tuple(self.incomplete),
        )


def _severity(difference: Difference) -> tuple[int, str, str]:
    return SEVERITY[difference.kind], difference.customer or "", difference.line or ""


def _seen(intent: PaymentIntent) -> Seen:
    return Seen(intent.id, intent.status, intent.amount_minor, intent.currency, intent.customer)


def _with(seen: Sequence[Seen], one: Seen) -> tuple[Seen, ...]:
    return (*(other for other in seen if other.payment_intent != one.payment_intent), one)
