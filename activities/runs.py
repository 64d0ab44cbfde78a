"""The run's own activities: lock, plan, what is due, close."""

from temporalio import activity

from activities.close_report import Closer
from activities.crash_points import CrashPoint, reach
from activities.heartbeat import heartbeats
from activities.ledger.control import ControlLedger
from activities.ledger.runs import DueSummary, Run, RunLedger
from activities.plan import Planner
from workflows import contracts
from workflows.contracts import (
    Decision,
    Due,
    HoldKind,
    Lock,
    LockRequest,
    Plan,
    RunKey,
    RunReport,
    RunRequest,
)
from workflows.domain.errors import InvalidInput, invariant


class RunActivities(contracts.RunActivities):
    """Lock, plan, ask and close, over the ledger of this process."""

    def __init__(
        self, *, ledger: RunLedger, control: ControlLedger, planner: Planner, closer: Closer
    ) -> None:
        self._ledger = ledger
        self._closer = closer
        self._control = control
        self._planner = planner

    @activity.defn(name="lock_run")
    async def lock_run(self, request: LockRequest) -> Lock:
        """Take the lock, or say who has it. A retry that lost its answer recognises its own row.

        A run that is recovered has its row already: it changes hands, if it is still the dead workflow's.
        """
        run = request.run
        if run.recovered_owner is not None:
            by = run.recovered_by or Decision(who=run.started_by, reason="its workflow is gone")
            async with heartbeats():
                await self._control.recover(
                    run.run_id,
                    owner_before=run.recovered_owner,
                    owner=request.owner,
                    who=by.who,
                    reason=by.reason,
                )
        reach(CrashPoint.LOCK_BEFORE_COMMIT)
        holder = await self._ledger.lock(
            run.run_id,
            account=run.account,
            period=run.period,
            owner=request.owner,
            source=run.source,
            source_sha256=run.source_sha256,
            started_by=run.started_by,
            request=run.model_dump(mode="json", exclude={"recovered_owner", "recovered_by"}),
        )
        reach(CrashPoint.LOCK_AFTER_COMMIT)
        acquired = (holder.run_id, holder.owner) == (run.run_id, request.owner)
        return Lock(
            acquired=acquired,
            run_id=holder.run_id,
            phase=holder.phase,
            hold=_kind(holder.hold),
            hold_reason=holder.hold_reason,
            canceling=holder.canceling,
            canary_released=holder.canary_released,
        )

    @activity.defn(name="plan_run")
    async def plan_run(self, request: RunRequest) -> Plan:
        """Stream the source into charges and freeze the plan, or refuse and free the period."""
        run = await self._ledger.read(request.run_id)
        if run.phase == "locked":
            async with heartbeats():
                try:
                    run = await self._planner.plan(request)
                except InvalidInput as error:
                    await self._ledger.fail(request.run_id, error.reason)
                    return Plan(refused=error.reason)
        return await self._plan_of(run)

    @activity.defn(name="give_up_run")
    async def give_up_run(self, run: RunKey) -> Plan:
        """Free the period of a run that was canceled before it had a plan; return the plan if it has one."""
        stands = await self._ledger.read(run.run_id)
        if stands.phase == "locked":
            await self._ledger.fail(run.run_id, stands.reason or "canceled")
            stands = await self._ledger.read(run.run_id)
        return await self._plan_of(stands)

    async def _plan_of(self, run: Run) -> Plan:
        if run.phase == "failed":
            return Plan(refused=run.reason or "the plan was refused")
        counts = await self._ledger.counts(run.run_id)
        return Plan(
            selected=run.selected or 0,
            skipped=counts.get("skipped", 0) + counts.get("skipped_rows", 0),
            slices=run.slices or 0,
            plan_hash=run.plan_hash or "",
            approved=run.approved_hash is not None,
        )

    @activity.defn(name="read_due")
    async def read_due(self, run: RunKey) -> Due:
        """Say what is open and when it is due."""
        return due_of(await self._ledger.due(run.run_id))

    @activity.defn(name="begin_settling")
    async def begin_settling(self, run: RunKey) -> None:
        """Record that every slice has been worked through."""
        await self._ledger.begin_settling(run.run_id)

    @activity.defn(name="close_run")
    async def close_run(self, run: RunKey) -> RunReport:
        """Ask Stripe about double charges, then freeze counts and report and close the run."""
        async with heartbeats():
            reach(CrashPoint.CLOSE_BEFORE_COMMIT)
            closed = await self._closer.close(run)
            reach(CrashPoint.CLOSE_AFTER_COMMIT)
            return _report(closed, notifications=await self._closer.announced(run))


def due_of(due: DueSummary) -> Due:
    """Return what is due as the workflow hears of it."""
    return Due(
        open=due.open,
        in_flight=due.in_flight,
        due_now=due.due_now,
        next_due_seconds=due.next_due_seconds,
        next_due_epoch_seconds=due.next_due_epoch_seconds,
        hold=_kind(due.hold),
        hold_reason=due.hold_reason,
        canceling=due.canceling,
        in_flight_due_now=due.in_flight_due_now,
        next_in_flight_due_seconds=due.next_in_flight_due_seconds,
    )


def _kind(hold: str | None) -> HoldKind | None:
    return None if hold is None else HoldKind(hold)


def _report(run: Run, *, notifications: int) -> RunReport:
    counts = dict(run.counts or {})
    invariant(sum(counts.values()) == run.selected, f"the counts of {run.run_id} do not add up (I9)")
    return RunReport(
        run_id=run.run_id,
        phase=run.phase,
        selected=run.selected or 0,
        counts=counts,
        reason=run.reason,
        notifications=notifications,
    )
