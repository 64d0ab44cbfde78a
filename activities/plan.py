"""Planning: stream the source into the ledger, with a reason for every line that will not be charged.

A preview and a run's own plan are made by the same steps and differ in the last one: whether they are kept.
Lines gather in staging tables of one session and become the plan in one transaction, so a killed planner
leaves nothing behind and starts again. Stripe is asked for missing payment methods in between, when no
transaction is open.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from activities.accounts import Accounts
from activities.crash_points import CrashPoint, reach
from activities.ledger.frozen_plan import CustomerAmount, FrozenPlan, PlanRecord, PlanTerms
from activities.ledger.planning import PlanLedger
from activities.ledger.runs import Run
from activities.payment_methods import PaymentMethods
from activities.plan_rows import RowStager
from activities.plan_summary import PlanSummary, summarize
from activities.sources import Source
from activities.sources.opening import open_source
from activities.vault import PLANNING
from workflows.contracts import RunKey, RunRequest
from workflows.domain.errors import InvalidInput
from workflows.domain.money import format_money

BATCH_ROWS = 2_000


class Planner:
    """Turns a run's source into its plan."""

    def __init__(self, *, ledger: PlanLedger, accounts: Accounts, batch_rows: int = BATCH_ROWS) -> None:
        self._ledger = ledger
        self._accounts = accounts
        self._batch_rows = batch_rows

    async def plan(self, request: RunRequest) -> Run:
        """Plan the run and return its row: charging if the plan was approved beforehand, else planned.

        Raises:
            InvalidInput: The source is not what was hashed, or has rows that can't be billed exactly and
                were not asked to be skipped. Nothing has been planned then.
            NothingWasSent: Stripe does not say how a customer pays.
            RefusedToStart: This process has no credentials for the account.
            StaleWrite: The run is not being planned any more, or lines have moved on meanwhile.
        """
        async with self._frozen(request) as (plan, summary):
            record = PlanRecord(
                selected=summary.selected,
                plan_hash=summary.plan_hash,
                planned_by=request.started_by,
                approved_because=_approved_because(request, summary),
                summary=summary.document(),
                nothing_due=summary.nothing_due,
            )
            run = await plan.move(record, summary.totals())
            reach(CrashPoint.PLAN_BEFORE_COMMIT)
        reach(CrashPoint.PLAN_AFTER_COMMIT)
        return run

    async def preview(self, request: RunRequest) -> PlanSummary:
        """Return what `plan` would decide now, hash included, and keep nothing of it. Raises as that."""
        async with self._frozen(request) as (_, summary):
            return summary

    async def preview_customers(self, request: RunRequest) -> tuple[PlanSummary, list[CustomerAmount]]:
        """Return what `preview` does, and what each customer would be charged. Raises as that."""
        async with self._frozen(request) as (plan, summary):
            return summary, await plan.customers()

    @asynccontextmanager
    async def _frozen(self, request: RunRequest) -> AsyncIterator[tuple[FrozenPlan, PlanSummary]]:
        source = open_source(request.source)
        await _refuse_changed(source, request)
        run = RunKey(run_id=request.run_id, account=request.account)
        parts = await self._accounts.of(run, PLANNING)
        terms = PlanTerms(
            run_id=request.run_id,
            account=request.account,
            period=request.period,
            slice_lines=request.slice_size,
            canary_lines=request.canary.lines,
        )
        async with self._ledger.planning(terms) as writer:
            rows = RowStager(request, writer)
            async with aclosing(source.batches(self._batch_rows)) as batches:
                await rows.stage(batches)
            lookups = await PaymentMethods(parts).resolve(writer)
            # Once more: what was read between the first look and now is what was asked for, or nothing is.
            await _refuse_changed(source, request)
            async with writer.freezing() as plan:
                yield (
                    plan,
                    await summarize(
                        plan, request, selected=rows.selected, lookups=lookups, limiter=parts.limiter
                    ),
                )


def _approved_because(request: RunRequest, summary: PlanSummary) -> str | None:
    if request.approved_hash == summary.plan_hash:
        return "this very plan was approved beforehand, by its hash"
    if summary.nothing_due is not None:
        return f"there is nothing to approve: {summary.nothing_due}"
    if request.approved_hash is not None:
        # Somebody looked at one plan, and this is another: no rule for plans in general stands for that.
        return None
    if request.approve_any:
        return "any plan was approved beforehand"
    limits = request.approve_within_minor
    totals = {currency: total.amount_minor for currency, total in summary.currencies.items()}
    if limits and all(amount <= limits.get(currency, -1) for currency, amount in totals.items()):
        told = ", ".join(format_money(limits[currency], currency) for currency in sorted(limits))
        return f"plans within {told} were approved beforehand"
    return None


async def _refuse_changed(source: Source, request: RunRequest) -> None:
    if await source.fingerprint() != request.source_sha256:
        raise InvalidInput(f"the source {source.spec!r} has changed since the run was asked for")
