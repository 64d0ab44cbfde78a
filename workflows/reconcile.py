"""Reconciliation: after an incident, or by the calendar, every charge compared with Stripe.

The workflow only orders the work: scan the account's time in slices, look at whatever did not agree, look
for events that never came in, close with a report. What was found is in the ledger, never in here, and each
step can be repeated at any point.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from workflows.policies import SLICE_SECONDS, forever, heartbeat
    from workflows.reconcile_contracts import (
        Looked,
        ReconcileActivities,
        ReconcileOpening,
        ReconcilePlan,
        ReconcileProgress,
        ReconcileReport,
        ReconcileRequest,
        ScanSlice,
    )

SLICES_AT_ONCE = 4

Given = TypeVar("Given")
Got = TypeVar("Got")


@workflow.defn(name="Reconcile")
class Reconcile:
    """One reconciliation of one account, or of one run of it."""

    @workflow.init
    def __init__(self, request: ReconcileRequest) -> None:
        self._request = request
        self._progress = ReconcileProgress()

    @workflow.query
    def progress(self) -> ReconcileProgress:
        """How far it has come."""
        return self._progress

    @workflow.run
    async def run(self, request: ReconcileRequest) -> ReconcileReport:
        """Reconcile, and return the report. Fails where there is no such run."""
        plan: ReconcilePlan = await self._do(
            ReconcileActivities.open_reconciliation,
            ReconcileOpening(request=request, owner=workflow.info().first_execution_run_id),
        )
        self._move(step="scanning", slices=plan.slices, charges=plan.charges)
        await self._scan(plan)
        left: int = await self._do(ReconcileActivities.suspect_unseen, plan.key)
        self._move(step="looking", suspects=left, left=left)
        while left:
            looked: Looked = await self._do(ReconcileActivities.look_at_suspects, plan.key)
            left = looked.left
            self._move(left=left)
        self._move(step="events")
        await self._do(ReconcileActivities.find_missed_events, plan.key)
        self._move(step="closing")
        report: ReconcileReport = await self._do(ReconcileActivities.close_reconciliation, plan.key)
        self._move(step="closed")
        return report

    async def _scan(self, plan: ReconcilePlan) -> None:
        slots = asyncio.Semaphore(SLICES_AT_ONCE)

        async def scan(slice_no: int) -> None:
            async with slots:
                await self._do(
                    ReconcileActivities.scan_slice,
                    ScanSlice(key=plan.key, slice_no=slice_no, customers=plan.customers),
                )
                self._move(slices_done=self._progress.slices_done + 1)

        await asyncio.gather(*(scan(slice_no) for slice_no in range(plan.slices)))

    async def _do(self, method: Callable[[Any, Given], Awaitable[Got]], argument: Given) -> Got:
        return await workflow.execute_activity_method(
            method,
            argument,
            start_to_close_timeout=SLICE_SECONDS,
            heartbeat_timeout=heartbeat(self._request.timing),
            retry_policy=forever(self._request.timing),
        )

    def _move(self, **changes: object) -> None:
        self._progress = self._progress.model_copy(update=changes)
