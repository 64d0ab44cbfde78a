"""The launcher's activities: from a firing to the request for one run, or to who has the period."""

from contextlib import aclosing

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.accounts import Accounts
from activities.ledger.calendar import CalendarLedger
from activities.ledger.runs import RunLedger
from activities.sources import Source, SourceProblem
from activities.sources.opening import FileSource, open_source
from workflows import launch_contracts
from workflows.contracts import RunRequest
from workflows.domain.errors import CredentialsRefused, InvalidInput
from workflows.domain.periods import Period
from workflows.launch_contracts import PERIOD_PLACEHOLDER, Firing, LaunchOrder, PreparedLaunch, Winner

_FIRST_ROWS = 100


class LaunchActivities(launch_contracts.LaunchActivities):
    """Prepare a launch, over ledger, accounts and sources of this process; `client` sees lost workflows."""

    def __init__(
        self, *, calendar: CalendarLedger, runs: RunLedger, accounts: Accounts, client: Client
    ) -> None:
        self._calendar = calendar
        self._runs = runs
        self._accounts = accounts
        self._client = client

    @activity.defn(name="prepare_launch")
    async def prepare_launch(self, firing: Firing) -> PreparedLaunch:
        """Name period, run and source of a firing. Raises, to be tried again, while its source is away."""
        order = firing.order
        period = period_of(firing)
        if not order.calendar.covers(period):
            since, until = order.calendar.since, order.calendar.until or "further notice"
            return PreparedLaunch(
                period=str(period), refused=f"schedule {order.schedule} bills from {since} until {until}"
            )
        found = await self._calendar.next_run(order.account, str(period))
        if found.owner is not None:
            winner = Winner(run_id=found.owner.run_id, phase=found.owner.phase)
            return PreparedLaunch(period=str(period), winner=winner)
        # Whoever decided this very launch, knows of the waiver.
        if order.decided_by is None:
            waiver = await self._calendar.waiver(order.account, str(period))
            if waiver is not None:
                return PreparedLaunch(period=str(period), refused=str(waiver))
        try:
            source = source_of(order, period)
            await self._accounts.choose(order.account)
        except (InvalidInput, CredentialsRefused) as error:
            # Neither a spec of no kind nor a key that Stripe refuses gets better by waiting.
            raise ApplicationError(str(error), type=type(error).__name__, non_retryable=True) from error
        request = request_of(order, period, source, await source.fingerprint(), run_id=found.run_id)
        await _refuse_empty(source)
        return PreparedLaunch(period=str(period), request=request)

    @activity.defn(name="find_winner")
    async def find_winner(self, request: RunRequest) -> Winner:
        """Say how the run stands whose id Temporal has given away already."""
        is_gone = not await _is_running(self._client, request.run_id)
        run = await self._runs.find(request.run_id)
        if run is None:
            return Winner(run_id=request.run_id, phase="starting", lost=is_gone)
        return Winner(run_id=run.run_id, phase=run.phase)


def period_of(firing: Firing) -> Period:
    """Return the period that a firing bills: the one it names, else the one its nominal time is for."""
    if firing.order.period is not None:
        return Period.parse(firing.order.period)
    return firing.order.calendar.fired_at(firing.nominal).period


def source_of(order: LaunchOrder, period: Period) -> Source:
    """Return the source of one period; nothing of it has been read yet. Raises InvalidInput."""
    return open_source(order.source.replace(PERIOD_PLACEHOLDER, str(period)))


def request_of(
    order: LaunchOrder, period: Period, source: Source, source_sha256: str, *, run_id: str
) -> RunRequest:
    """Return what starts the run of one period of an order: the same for launcher, sweep and preview."""
    decided, schedule = order.decided_by, f"schedule {order.schedule}"
    return RunRequest(
        account=order.account,
        period=str(period),
        run_id=run_id,
        source=source.spec,
        source_sha256=source_sha256,
        started_by=schedule if decided is None else f"{decided.who}, for {schedule}",
        approve_any=order.approve_any,
        approve_within_minor=order.approve_within_minor,
        approved_hash=order.approved_hash,
        timing=order.timing,
        **dict(order.terms),
    )


async def _refuse_empty(source: Source) -> None:
    # Such a run would close at once and own the period: the file that was meant could never be billed. A
    # query or a program is asked once, by the plan.
    if not isinstance(source, FileSource):
        return
    async with aclosing(source.batches(_FIRST_ROWS)) as batches:
        async for batch in batches:
            if any(not isinstance(row, SourceProblem) for row in batch):
                return
    raise InvalidInput(f"{source.spec} has no line to bill")


async def _is_running(client: Client, run_id: str) -> bool:
    try:
        described = await client.get_workflow_handle(run_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return described.status is WorkflowExecutionStatus.RUNNING
