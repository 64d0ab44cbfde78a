"""Start a billing run, or see what it would do: whose money it is, which run, and the request for it."""

from dataclasses import dataclass

from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from activities.ledger.database import Pool
from activities.ledger.frozen_plan import CustomerAmount
from activities.ledger.planning import PlanLedger
from activities.ledger.runs import Run, RunLedger
from activities.plan import Planner
from activities.plan_summary import PlanSummary
from worker.failures import EXIT_REFUSED, CommandFailed
from worker.run_advice import describe_recovery
from worker.run_view import ENDED_PHASES
from worker.settings import Settings
from worker.source_check import CheckedSource
from worker.temporal_client import RunHandle, is_running
from worker.whoami import who
from worker.wiring import open_accounts
from worker.workflow_state import WorkflowState, workflow_state
from workflows.billing_run import BillingRun
from workflows.contracts import BelowMinimum, Canary, RunInput, RunRequest
from workflows.domain.periods import Period
from workflows.domain.retry_policy import DEFAULT_POLICY, RetryPolicy

SLICE_LINES_DEFAULT = 500
CHANGE_PERCENT_DEFAULT = 20.0
RUNS_PER_PERIOD_MAX = 1_000
NO_CANARY = Canary()
# A run in one of these keeps its charges, and no longer its period.
_CHARGING_IS_OVER = frozenset({"retrying", "closed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """What a person may choose about a run. `slice_lines` is 1 to 5,000.

    `approve_any` charges whatever the plan is, `approved_hash` the plan of that hash alone; with neither the
    run waits for approval. `account` None is the only one there is. `again` bills a period once more that has
    had its run: what is missing, and what ended without success.
    """

    period: Period
    account: str | None = None
    again: bool = False
    skip_invalid: bool = False
    below_minimum: BelowMinimum = BelowMinimum.CHARGE
    change_percent: float = CHANGE_PERCENT_DEFAULT
    approve_any: bool = False
    approved_hash: str | None = None
    canary: Canary = NO_CANARY
    duration_limit_seconds: float | None = None
    retry_policy: RetryPolicy = DEFAULT_POLICY
    slice_lines: int = SLICE_LINES_DEFAULT


async def preview_run(
    pool: Pool, settings: Settings, checked: CheckedSource, options: StartOptions
) -> PlanSummary:
    """Return what a run started now would plan, by the planner's own steps; nothing is kept of it.

    Raises:
        InvalidInput: The source can't be billed exactly.
        NothingWasSent: Stripe does not say how a customer pays.
        RefusedToStart: There are no credentials for the account, a live key without `--live`, or Stripe does
            not know the key.
    """
    async with open_accounts(settings, pool) as accounts:
        account = await accounts.choose(options.account)
        run_id, _ = await _next_run(RunLedger(pool), account=account, period=options.period)
        request = _request(settings, checked, options, account=account, run_id=run_id)
        return await Planner(ledger=PlanLedger(pool), accounts=accounts).preview(request)


async def preview_customers(
    pool: Pool, settings: Settings, checked: CheckedSource, options: StartOptions
) -> tuple[PlanSummary, list[CustomerAmount]]:
    """Return what `preview_run` does, and what each customer would be charged. Raises as that."""
    async with open_accounts(settings, pool) as accounts:
        account = await accounts.choose(options.account)
        run_id, _ = await _next_run(RunLedger(pool), account=account, period=options.period)
        request = _request(settings, checked, options, account=account, run_id=run_id)
        return await Planner(ledger=PlanLedger(pool), accounts=accounts).preview_customers(request)


async def start_run(
    client: Client, pool: Pool, settings: Settings, checked: CheckedSource, options: StartOptions
) -> RunHandle:
    """Start the run and return its handle; a worker does the rest.

    Raises:
        CommandFailed: Exit code 4: a run of this account and period is still charging, or has charged before
            and nobody said `again`. Nobody is charged.
        RefusedToStart: There are no credentials for the account, a live key without `--live`, or Stripe does
            not know the key.
    """
    async with open_accounts(settings, pool) as accounts:
        account = await accounts.choose(options.account)
    ledger = RunLedger(pool)
    run_id, owner = await _next_run(ledger, account=account, period=options.period)
    if owner is not None and not (options.again and owner.phase in _CHARGING_IS_OVER):
        state = await workflow_state(client, ledger, owner.run_id)
        raise _owned(owner.run_id, owner.phase, is_lost=state is WorkflowState.LOST)
    request = _request(settings, checked, options, account=account, run_id=run_id)
    return await begin_run(client, ledger, request, task_queue=settings.task_queue)


async def begin_run(client: Client, ledger: RunLedger, request: RunRequest, *, task_queue: str) -> RunHandle:
    """Start the run's workflow. Raises CommandFailed, exit code 4, where another one has the id.

    One that ended without a row of the ledger was lost before it had the lock: it charged nobody, and would
    keep the period for as long as Temporal remembers it. So its id is used again; the lock is the row.
    """
    reuse = WorkflowIDReusePolicy.REJECT_DUPLICATE
    while True:
        try:
            return await client.start_workflow(
                BillingRun.run,
                RunInput(request=request),
                id=request.run_id,
                task_queue=task_queue,
                id_reuse_policy=reuse,
            )
        except WorkflowAlreadyStartedError:
            is_gone = not await is_running(client, request.run_id)
            run = await ledger.find(request.run_id)
            if run is not None or not is_gone or reuse is WorkflowIDReusePolicy.ALLOW_DUPLICATE:
                phase = "starting" if run is None else run.phase
                is_lost = run is not None and is_gone and phase not in ENDED_PHASES
                raise _owned(request.run_id, phase, is_lost=is_lost) from None
            reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE


def _request(
    settings: Settings, checked: CheckedSource, options: StartOptions, *, account: str, run_id: str
) -> RunRequest:
    return RunRequest(
        account=account,
        period=str(options.period),
        run_id=run_id,
        source=checked.spec,
        source_sha256=checked.sha256,
        started_by=who(),
        skip_invalid=options.skip_invalid,
        below_minimum=options.below_minimum,
        approve_any=options.approve_any,
        approved_hash=options.approved_hash,
        canary=options.canary,
        change_percent=options.change_percent,
        duration_limit_seconds=options.duration_limit_seconds,
        retry_policy=options.retry_policy,
        slice_size=options.slice_lines,
        slices_at_once=settings.slices_at_once,
        timing=settings.timing,
    )


async def _next_run(ledger: RunLedger, *, account: str, period: Period) -> tuple[str, Run | None]:
    """Return the id of the period's next run, and the run that keeps it from starting, if one does.

    A run that failed never charged anything, and one that was canceled has closed what it did not: another
    may begin after either. The ledger is asked because it remembers longer than Temporal keeps workflow ids.
    """
    run_id, owner = f"billing-run/{account}/{period}", None
    for number in range(2, RUNS_PER_PERIOD_MAX + 1):
        run = await ledger.find(run_id)
        if run is None:
            break
        if run.phase != "failed" and not (run.phase == "closed" and run.canceling):
            owner = run
        run_id = f"billing-run/{account}/{period}/r{number}"
    return run_id, owner


def _owned(run_id: str, phase: str, *, is_lost: bool = False) -> CommandFailed:
    advice = f"look at it with `chargeonce run show {run_id}`"
    if phase in _CHARGING_IS_OVER:
        advice += "; to bill what is missing or changed: `run start --again` with the same options"
    if is_lost:
        advice = f"but its workflow was lost, and nobody works on it until: {describe_recovery(run_id)}"
    return CommandFailed(
        f"run {run_id} owns this period already (phase {phase}), so nothing was started and nobody is "
        f"charged; {advice}",
        exit_code=EXIT_REFUSED,
        details={
            "refused": "the period has a run already",
            "run": run_id,
            "phase": phase,
            "workflow_lost": is_lost,
        },
    )
