"""Start a billing run: whose money it is, then one workflow for the account and period, or a refusal."""

import getpass
import os
import socket
from dataclasses import dataclass

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from activities.ledger.database import Pool
from activities.ledger.runs import RunLedger
from worker.failures import EXIT_REFUSED, CommandFailed
from worker.run_view import view_run
from worker.settings import Settings
from worker.source_check import CheckedSource
from worker.temporal_client import RunHandle
from worker.wiring import find_account, open_gateway
from workflows.billing_run import BillingRun
from workflows.contracts import RunInput, RunRequest
from workflows.domain.periods import Period

SLICE_LINES_DEFAULT = 500
RUNS_PER_PERIOD_MAX = 1_000


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What a person may choose about a run. `slice_lines` is 1 to 5,000."""

    period: Period
    skip_invalid: bool = False
    slice_lines: int = SLICE_LINES_DEFAULT


async def start_run(
    client: Client, pool: Pool, settings: Settings, checked: CheckedSource, options: StartOptions
) -> RunHandle:
    """Start the run and return its handle; a worker does the rest.

    Raises:
        CommandFailed: Exit code 4: a run of this account and period was started before. Nobody is charged.
        RefusedToStart: The key is live and `--live` was not said, or Stripe does not know the key.
    """
    async with open_gateway(settings) as gateway:
        account = (await find_account(settings, gateway)).id
    ledger = RunLedger(pool)
    run_id = await _free_run_id(client, ledger, account=account, period=options.period)
    request = RunRequest(
        account=account,
        period=str(options.period),
        run_id=run_id,
        source=str(checked.path),
        source_sha256=checked.sha256,
        started_by=_who(),
        skip_invalid=options.skip_invalid,
        slice_size=options.slice_lines,
        slices_at_once=settings.slices_at_once,
        timing=settings.timing,
    )
    try:
        return await client.start_workflow(
            BillingRun.run,
            RunInput(request=request),
            id=run_id,
            task_queue=settings.task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        )
    except WorkflowAlreadyStartedError:
        raise await _owned(client, ledger, run_id) from None


async def _free_run_id(client: Client, ledger: RunLedger, *, account: str, period: Period) -> str:
    """Return the id of a run that may start: the first, or the next after runs that failed before charging.

    The ledger is asked because it remembers longer than Temporal keeps workflow ids.
    """
    run_id = f"billing-run/{account}/{period}"
    for number in range(2, RUNS_PER_PERIOD_MAX + 1):
        view = await view_run(ledger, run_id)
        if view.run is None:
            break
        if view.phase != "failed":
            raise await _owned(client, ledger, run_id)
        run_id = f"billing-run/{account}/{period}/r{number}"
    return run_id


async def _owned(client: Client, ledger: RunLedger, run_id: str) -> CommandFailed:
    view = await view_run(ledger, run_id)
    phase = view.phase
    if view.run is None:
        description = await client.get_workflow_handle(run_id).describe()
        if description.status is not WorkflowExecutionStatus.RUNNING:
            phase = "ended without a row" if description.status is None else description.status.name.lower()
    return CommandFailed(
        f"run {run_id} owns this period already (phase {phase}), so nothing was started and nobody is "
        f"charged; look at it with `chargeonce run show {run_id}`",
        exit_code=EXIT_REFUSED,
        details={"refused": "the period has a run already", "run": run_id, "phase": phase},
    )


def _who() -> str:
    """Return who typed the command, as user@host; a container's user may have no name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
