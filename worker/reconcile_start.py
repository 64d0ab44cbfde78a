"""`chargeonce reconcile`: whose charges, since when; start the workflow, and stay for its report."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from activities.ledger.audit import read_accounts
from activities.ledger.clock import read_clock
from activities.ledger.database import Pool, open_pool
from activities.ledger.drift import DriftLedger
from activities.ledger.runs import RunLedger
from worker.audit_read import read_since
from worker.console_output import Output
from worker.environment import load_settings
from worker.failures import EXIT_REFUSED, CommandFailed
from worker.reasons import read_reason
from worker.reconcile_follow import SEE, ReconcileHandle, await_report, await_the_end
from worker.reconcile_read import print_report, read_report, refuse_unwritable_files
from worker.run_control import decision_of
from worker.settings import Settings
from worker.temporal_client import connect_temporal, is_running
from worker.whoami import who as whoever_types
from workflows.contracts import Decision
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput, RefusedToStart
from workflows.reconcile import Reconcile
from workflows.reconcile_contracts import ReconcileRequest

NO_REASON = "no reason was given"
# What such a run sends at this moment is its own, and in flight: nothing of it is concluded from.
_AT_WORK = frozenset({"charging", "settling"})
_LOOKED_THROUGH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileCommand:
    """What was typed: a run, or a span of an account."""

    run_id: str | None
    since: str | None
    until: str | None
    account: str | None
    repair: bool
    wait: bool
    reason: str | None
    who: str | None
    csv_file: Path | None
    html_file: Path | None


async def reconcile(output: Output, command: ReconcileCommand) -> None:
    """Start a reconciliation, and print its report.

    Of one scope there is one at a time: another that is under way is waited for, and this one begins after
    it, so that it sees what was done until it was typed.

    Raises:
        InvalidInput: A time or a file can't be right, or it has to be said whose charges are meant.
        RefusedToStart: There is no such run, or Temporal does not answer.
        CommandFailed: 4: one is under way, and this command was not to wait; 1: the workflow failed.
        typer.Exit: 3: a difference is open, or something could not be read.
    """
    refuse_unwritable_files(command.csv_file, command.html_file)
    settings = load_settings()
    async with open_pool(settings.database_url.get_secret_value(), connections=2) as pool:
        request = await _request(pool, settings, command)
        client = await connect_temporal()
        await _tell_what_is_under_way(client, pool, request, output.notice)
        handle = await _begin(output, client, settings, request, wait=command.wait)
        if not command.wait:
            _tell_started(output, request)
            return
        report = await await_report(output, handle, DriftLedger(pool))
        shown = await read_report(pool, settings, report.reconciliation_id)
    print_report(output, shown, csv_file=command.csv_file, html_file=command.html_file)


def _tell_started(output: Output, request: ReconcileRequest) -> None:
    document = {
        "started": request.workflow_id,
        "account": request.account,
        "run": request.run_id,
        "repair": request.repair,
    }
    output.result(document, lambda: [f"{request.workflow_id} is under way: {SEE}"])


async def _request(pool: Pool, settings: Settings, command: ReconcileCommand) -> ReconcileRequest:
    reason = NO_REASON if command.reason is None else read_reason(command.reason)
    decided_by = decision_of(Decision, who=command.who or whoever_types(), reason=reason)
    if command.run_id is not None:
        run = await RunLedger(pool).read(command.run_id)
        return ReconcileRequest(
            workflow_id=f"reconcile/{run.run_id}",
            account=run.account,
            run_id=run.run_id,
            repair=command.repair,
            decided_by=decided_by,
            timing=settings.timing,
        )
    now = (await read_clock(settings.database_url.get_secret_value())).now
    since, until = _span(command, now=now)
    account = await _account(pool, command.account)
    return ReconcileRequest(
        workflow_id=f"reconcile/{account}",
        account=account,
        since_epoch_seconds=since.timestamp(),
        until_epoch_seconds=None if until is None else until.timestamp(),
        repair=command.repair,
        decided_by=decided_by,
        timing=settings.timing,
    )


def _span(command: ReconcileCommand, *, now: datetime) -> tuple[datetime, datetime | None]:
    since = read_since(command.since or "", now=now)
    until = None if command.until is None else read_since(command.until, now=now)
    if since >= now:
        raise InvalidInput(f"--since is {since.isoformat()}, which is still to come by the ledger's clock")
    if until is not None and until <= since:
        raise InvalidInput(f"--until is {until.isoformat()}, and not after --since, {since.isoformat()}")
    return since, until


async def _account(pool: Pool, named: str | None) -> str:
    accounts = await read_accounts(pool)
    if not accounts:
        raise RefusedToStart("the ledger has no run to reconcile")
    if named is not None:
        if named not in accounts:
            raise RefusedToStart(f"the ledger has no run of {echo(named)}, but of {', '.join(accounts)}")
        return named
    if len(accounts) > 1:
        raise InvalidInput(f"say whose charges are meant: --account {' or '.join(accounts)}")
    return accounts[0]


async def _tell_what_is_under_way(
    client: Client, pool: Pool, request: ReconcileRequest, notice: Callable[[str], None]
) -> None:
    for run in await RunLedger(pool).newest(limit=_LOOKED_THROUGH):
        is_meant = run.run_id == request.run_id if request.run_id else run.account == request.account
        if is_meant and run.phase in _AT_WORK:
            notice(
                f"{run.run_id} is at work (phase {run.phase}): what it has in flight stays its own, and what "
                "it sends from now on is for the next reconciliation"
            )
    for other in await DriftLedger(pool).newest(_LOOKED_THROUGH):
        is_other = other.account == request.account and other.workflow_id != request.workflow_id
        if other.phase == "open" and is_other and await is_running(client, other.workflow_id):
            notice(
                f"{other.reconciliation_id} is under way for the same account, begun by {other.who} at "
                f"{other.opened_at:%Y-%m-%d %H:%M:%S}; neither disturbs the other"
            )


async def _begin(
    output: Output, client: Client, settings: Settings, request: ReconcileRequest, *, wait: bool
) -> ReconcileHandle:
    """Start the workflow, after the one that is under way for the same scope."""
    while True:
        try:
            return await client.start_workflow(
                Reconcile.run,
                request,
                id=request.workflow_id,
                task_queue=settings.task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            )
        except WorkflowAlreadyStartedError:
            if not wait:
                raise CommandFailed(
                    f"{request.workflow_id} is under way already, so nothing was started: {SEE}",
                    exit_code=EXIT_REFUSED,
                    details={
                        "refused": "one is under way",
                        "workflow": request.workflow_id,
                    },
                ) from None
            output.notice(f"{request.workflow_id} is under way already: this one begins after it")
            running = client.get_workflow_handle_for(Reconcile.run, request.workflow_id)
            try:
                await await_the_end(running, output.notice)
            except asyncio.CancelledError:
                output.notice("nothing was started by this command; the one under way goes on")
                raise
