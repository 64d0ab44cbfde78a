"""Whoever reconciles a scene: the activities in the workflow's order, without Temporal."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from temporalio.testing import ActivityEnvironment

from activities.ledger.drift import DriftLedger, DriftRow
from activities.reconcile import ReconcileActivities
from tests.activities.scene import ACCOUNT, RUN_ID, Scene
from tests.web.mailroom import Mailroom
from workflows.contracts import Decision
from workflows.reconcile_contracts import (
    ReconcileOpening,
    ReconcileReport,
    ReconcileRequest,
    ScanSlice,
)

_numbers = count(1)


@dataclass
class Office:
    """Reconciles a scene's run, or its account; each step `times` over, as after kills."""

    mail: Mailroom
    times: int = 1
    activities: ReconcileActivities = field(init=False)

    def __post_init__(self) -> None:
        """Prepare the activities."""
        self.activities = ReconcileActivities(self.mail.scene.pool, self.mail.accounts)

    async def reconcile(
        self, *, repair: bool = False, since: float | None = None, until: float | None = None
    ) -> ReconcileReport:
        """Go through one whole reconciliation of the run, or of a span of the account."""
        request = ReconcileRequest(
            workflow_id="reconcile/tests",
            account=ACCOUNT.id,
            run_id=RUN_ID if since is None else None,
            since_epoch_seconds=since,
            until_epoch_seconds=until,
            repair=repair,
            decided_by=Decision(who="tests", reason="scripted"),
        )
        opening = ReconcileOpening(request=request, owner=f"execution-{next(_numbers)}")
        plan = await self.do(self.activities.open_reconciliation, opening)
        for slice_no in range(plan.slices):
            await self.do(
                self.activities.scan_slice,
                ScanSlice(key=plan.key, slice_no=slice_no, customers=plan.customers),
            )
        left = await self.do(self.activities.suspect_unseen, plan.key)
        while left:
            left = (await self.do(self.activities.look_at_suspects, plan.key)).left
        await self.do(self.activities.find_missed_events, plan.key)
        report: ReconcileReport = await self.do(self.activities.close_reconciliation, plan.key)
        return report

    async def do(self, method: Callable[[Any], Awaitable[Any]], argument: object) -> Any:
        """Run one activity, as often as it is killed and tried again."""
        result = None
        for _ in range(self.times):
            result = await ActivityEnvironment().run(method, argument)
        return result

    async def findings(self, *, open_only: bool = True) -> list[DriftRow]:
        """Return what the ledger keeps, oldest first."""
        return list(reversed(await DriftLedger(self.mail.scene.pool).findings(open_only=open_only)))

    async def kinds(self) -> list[tuple[str, str]]:
        """Return what is open, as kind and proposed repair."""
        return sorted((row.kind, row.repair) for row in await self.findings())


async def alter(scene: Scene, statement: str) -> None:
    """Change the ledger past its triggers, as somebody with every right does by hand."""
    await scene.owner.execute("ALTER TABLE charges DISABLE TRIGGER USER")
    try:
        await scene.owner.execute(statement)
    finally:
        await scene.owner.execute("ALTER TABLE charges ENABLE TRIGGER USER")
