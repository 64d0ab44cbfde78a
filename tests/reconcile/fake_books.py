"""Activities of reconciliations and refunds from memory, and what was asked of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from tests.workflows.stage import IDENTITY, sandbox
from workflows import reconcile_contracts, refund_contracts
from workflows.contracts import Decision, Timing
from workflows.reconcile import Reconcile
from workflows.reconcile_contracts import (
    Looked,
    ReconcileKey,
    ReconcileOpening,
    ReconcilePlan,
    ReconcileReport,
    ReconcileRequest,
    ScanSlice,
)
from workflows.refund import RefundCharge
from workflows.refund_contracts import RefundOrder, RefundStep

KEY = ReconcileKey(reconciliation_id="reconcile/acct_fake/1", account="acct_fake")
REQUEST = ReconcileRequest(
    workflow_id="reconcile/acct_fake",
    account="acct_fake",
    since_epoch_seconds=0.0,
    decided_by=Decision(who="tests", reason="scripted"),
    timing=Timing.TESTS,
)
ORDER = RefundOrder(request_id="0" * 24, run_id="billing-run", account="acct_fake", timing=Timing.TESTS)


@dataclass
class FakeBooks(reconcile_contracts.ReconcileActivities):
    """Books with some slices and suspects. `failures` says how often a step fails first."""

    slices: int = 3
    suspects: int = 5
    batch: int = 2
    refused: str | None = None
    failures: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def _ask(self, name: str) -> None:
        if self.failures.get(name):
            self.failures[name] -= 1
            raise ApplicationError(f"{name} fails")
        self.asked.append(name)

    @activity.defn(name="open_reconciliation")
    async def open_reconciliation(self, opening: ReconcileOpening) -> ReconcilePlan:
        """Say how it is gone about."""
        assert opening.owner
        if self.refused is not None:
            raise ApplicationError(self.refused, type="RefusedToStart", non_retryable=True)
        self._ask("open")
        how = "scan" if self.slices else "customers"
        return ReconcilePlan(key=KEY, how=how, slices=self.slices, charges=9, customers=9, repair=False)

    @activity.defn(name="scan_slice")
    async def scan_slice(self, work: ScanSlice) -> None:
        """Note it."""
        self._ask(f"slice {work.slice_no}")

    @activity.defn(name="suspect_unseen")
    async def suspect_unseen(self, key: ReconcileKey) -> int:  # noqa: ARG002 - the contract's
        """Say how many there are."""
        self._ask("unseen")
        return self.suspects

    @activity.defn(name="look_at_suspects")
    async def look_at_suspects(self, key: ReconcileKey) -> Looked:  # noqa: ARG002 - the contract's
        """Look at a few."""
        self._ask("look")
        looked = min(self.batch, self.suspects)
        self.suspects -= looked
        return Looked(looked=looked, left=self.suspects)

    @activity.defn(name="find_missed_events")
    async def find_missed_events(self, key: ReconcileKey) -> int:  # noqa: ARG002 - the contract's
        """Find none."""
        self._ask("events")
        return 0

    @activity.defn(name="close_reconciliation")
    async def close_reconciliation(self, key: ReconcileKey) -> ReconcileReport:
        """Sum up."""
        self._ask("close")
        return ReconcileReport(reconciliation_id=key.reconciliation_id, account=key.account, charges=9)

    @property
    def activities(self) -> Sequence[Callable[..., Any]]:
        """Everything, for a worker."""
        return [
            self.open_reconciliation,
            self.scan_slice,
            self.suspect_unseen,
            self.look_at_suspects,
            self.find_missed_events,
            self.close_reconciliation,
        ]


@dataclass
class FakeRefunds(refund_contracts.RefundActivities):
    """A refund that is made after some steps."""

    steps: int = 1
    ends: str = "made"
    taken: int = 0

    @activity.defn(name="carry_refund")
    async def carry_refund(self, order: RefundOrder) -> RefundStep:  # noqa: ARG002 - the contract's
        """Take a step."""
        self.taken += 1
        if self.taken < self.steps:
            return RefundStep(state="sending", reason="no answer", wait_seconds=3_600.0)
        return RefundStep(state=self.ends, reason="told", refund_id="re_1")

    @property
    def activities(self) -> Sequence[Callable[..., Any]]:
        """Everything, for a worker."""
        return [self.carry_refund]


def build_worker(client: Client, task_queue: str, activities: Sequence[Callable[..., Any]]) -> Worker:
    """Return a worker of both workflows."""
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[Reconcile, RefundCharge],
        activities=activities,
        workflow_runner=sandbox(),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        disable_eager_activity_execution=True,
        identity=IDENTITY,
    )
