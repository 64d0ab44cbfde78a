"""`chargeonce backfill`: bill several periods that are past, each as a run of its own, after one look at all.

What an earlier run charged is left out by the plan of each period, as in any run. Nothing is started before
somebody has seen, over all periods, what each customer would pay.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from temporalio.service import RPCError

from activities.ledger.calendar import CalendarLedger
from activities.ledger.database import Pool, open_pool
from activities.ledger.runs import RunLedger
from activities.sources.opening import FileSource, open_source
from worker.console_output import Output, table
from worker.environment import load_settings
from worker.failures import EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE, CommandFailed, exit_code_of
from worker.period_plans import PeriodPlans, render_period_plans
from worker.progress_display import progress_display
from worker.retry_policy_file import read_retry_policy
from worker.run_start import is_attended
from worker.run_view import RunView, view_run
from worker.settings import Settings
from worker.source_check import CheckedSource, check_source, describe_problem, not_looked_at
from worker.starting import StartOptions, preview_customers, start_run
from worker.temporal_client import RunHandle, connect_temporal
from worker.waiting import wait_for_run
from workflows.contracts import BelowMinimum, Canary
from workflows.domain.counted import counted
from workflows.domain.errors import ChargeonceError, InvalidInput
from workflows.domain.money import format_money
from workflows.domain.periods import Period
from workflows.domain.retry_policy import DEFAULT_POLICY
from workflows.launch_contracts import PERIOD_PLACEHOLDER

if TYPE_CHECKING:
    from rich.console import RenderableType

PERIODS_MAX = 400  # a year of days, with some to spare
# A run in one of these has its period; in any other, what it did not charge may be billed again.
OPEN_PHASES = frozenset({"locked", "planned", "charging", "settling"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillCommand:
    """What was typed. `source` has `{period}` in it; `customers` is a file to write the amounts to."""

    first: str
    last: str
    source: str
    account: str | None
    yes: bool
    approve: str | None
    preview: bool
    together: bool
    wait: bool
    skip_invalid: bool
    below_minimum: str
    canary_lines: int
    canary_declined_percent_max: float | None
    retry_policy: Path | None
    slice_lines: int
    live: bool
    customers: Path | None


@dataclass(frozen=True, slots=True)
class _Due:
    """One period that is to be billed."""

    label: str
    checked: CheckedSource
    options: StartOptions


async def run_backfill(output: Output, command: BackfillCommand) -> None:
    """Show what all periods come to, and once that is approved start them.

    Raises:
        InvalidInput: The periods or the source can't be right.
        CommandFailed: 2: rows can't be billed, or nobody approved; 4: a run has one of the periods just now,
            or what was approved is not what the plans are; 1: a run did not finish.
    """
    said = {"--yes": command.yes, "--approve": command.approve, "--preview": command.preview}
    if len(ways := [name for name, value in said.items() if value]) > 1:
        raise CommandFailed(f"{' and '.join(ways)} contradict each other: say one", exit_code=EXIT_USAGE)
    if command.canary_declined_percent_max is not None and not command.canary_lines:
        raise CommandFailed("--canary-max-declined is a rule for --canary: say both", exit_code=EXIT_USAGE)
    periods = _periods(command)
    settings = load_settings(live=command.live)
    settings.refuse_unspoken_live_key()
    due = [await _look_at(output, command, period) for period in periods]
    async with open_pool(settings.database_url.get_secret_value(), connections=4) as pool:
        backfill = _Backfill(output, pool, settings, command)
        plans = await backfill.plan(due)
        if command.customers is not None:
            plans.write_customers(command.customers)
        document = {
            **plans.document(),
            "nothing_due": [one.label for one in due if one.label not in plans.due],
        }
        if command.preview or not plans.due:
            output.result(document, lambda: _render_preview(document))
            return
        await backfill.approve(plans, document)
        await backfill.start([one for one in due if one.label in plans.due], plans, document)


@dataclass(frozen=True, slots=True)
class _Backfill:
    output: Output
    pool: Pool
    settings: Settings
    command: BackfillCommand

    async def plan(self, due: list[_Due]) -> PeriodPlans:
        """Preview every period, by the planner's own steps."""
        plans, calendar = PeriodPlans(), CalendarLedger(self.pool)
        for one in due:
            summary, customers = await preview_customers(self.pool, self.settings, one.checked, one.options)
            holder = (await calendar.next_run(summary.account, one.label)).owner
            if holder is not None and holder.phase in OPEN_PHASES:
                raise CommandFailed(
                    f"{holder.run_id} bills {one.label} just now (phase {holder.phase}), so nothing was "
                    f"started: wait for it, or leave {one.label} out",
                    exit_code=EXIT_REFUSED,
                    details={
                        "refused": "a period is being billed",
                        "run": holder.run_id,
                        "phase": holder.phase,
                    },
                )
            plans.add(one.label, summary, customers)
            if waiver := await calendar.waiver(summary.account, one.label):
                plans.waived[one.label] = str(waiver)
        return plans

    async def approve(self, plans: PeriodPlans, document: dict[str, Any]) -> None:
        """Return once somebody has approved the plans; raise CommandFailed where nobody has."""
        command, combined = self.command, plans.combined_hash
        if command.yes and (waived := plans.waived_and_due):
            # A month that was billed by hand is paid already, and --yes has looked at no plan.
            told = "; ".join(f"{label} was {waiver}" for label, waiver in waived.items())
            raise CommandFailed(
                f"{told}. Nothing was started: leave it out, or look with --preview and say --approve HASH",
                exit_code=EXIT_REFUSED,
                details=document,
            )
        if command.yes or command.approve == combined:
            return
        if command.approve is not None:
            raise CommandFailed(
                f"nothing was started: {command.approve} was approved, but these plans have the hash "
                f"{combined}; look at them again with --preview",
                exit_code=EXIT_REFUSED,
                details=document,
            )
        if not is_attended(self.output):
            raise CommandFailed(
                "nobody is there to confirm, so nothing was started; to charge these plans: "
                f"--approve {combined}",
                exit_code=EXIT_USAGE,
                details=document,
            )
        self.output.show(render_period_plans(document))
        sums = ", ".join(
            f"{counted(total['lines'], 'line')} of {format_money(total['amount_minor'], currency)} in all"
            for currency, total in document["totals"].items()
        )
        money = "REAL MONEY. " if self.settings.live else ""
        question = f"{money}Charge {sums} for {counted(len(plans.due), 'period')}?"
        if not await asyncio.to_thread(typer.confirm, question, err=True):
            raise CommandFailed("not confirmed: nothing was started", exit_code=EXIT_USAGE)

    async def start(self, due: list[_Due], plans: PeriodPlans, document: dict[str, Any]) -> None:
        """Start a run for each period: one after another, or all at once."""
        client, handles = await connect_temporal(), list[RunHandle]()
        try:
            for one in due:
                approved = None if self.command.yes else plans.summaries[one.label].plan_hash
                options = replace(one.options, approve_any=self.command.yes, approved_hash=approved)
                handle = await start_run(client, self.pool, self.settings, one.checked, options)
                self.output.notice(f"{one.label}: started {handle.id}")
                handles.append(handle)
                if not self.command.together:
                    await self._wait(handle)
            if self.command.together and self.command.wait:
                await asyncio.gather(*(self._wait(handle) for handle in handles))
        except (ChargeonceError, RPCError) as error:
            raise _cut_short(error, handles, due) from error
        await self._tell(handles, document)

    async def _wait(self, handle: RunHandle) -> None:
        """Wait until a run has ended or only waits; one that waits for a person ends the backfill."""
        ledger = RunLedger(self.pool)
        with progress_display() as display:
            waited = await wait_for_run(
                ledger, handle, display=display, notice=self.output.notice, person_seconds=0
            )
        if waited.view.phase == "planned":
            raise CommandFailed(
                f"{handle.id} has made another plan than was approved, and waits; no later period was "
                f"started: chargeonce run show {handle.id}",
                exit_code=EXIT_REFUSED,
                details=waited.view.document(),
            )
        run = waited.view.run
        if run is not None and run.hold is not None and not waited.view.ended:
            # Whoever or whatever holds it would not want the next period charged meanwhile.
            raise CommandFailed(
                f"{handle.id} is held ({run.hold}: {run.hold_reason}); no later period was started: "
                f"chargeonce run show {handle.id}",
                exit_code=EXIT_FAILED,
                details=waited.view.document(),
            )

    async def _tell(self, handles: list[RunHandle], document: dict[str, Any]) -> None:
        ledger = RunLedger(self.pool)
        views = [await view_run(ledger, handle.id) for handle in handles]
        document = {**document, "runs": [view.document() for view in views]}
        self.output.result(document, lambda: _render_runs(views))
        waited = self.command.wait or not self.command.together
        if waited and not all(view.ended or view.phase == "retrying" for view in views):
            raise typer.Exit(EXIT_FAILED)


def _cut_short(error: Exception, handles: list[RunHandle], due: list[_Due]) -> CommandFailed:
    """Return what ended a backfill midway, with the runs that it had started and the periods it had not."""
    details = error.details if isinstance(error, CommandFailed) else {}
    unstarted = [one.label for one in due[len(handles) :]]
    return CommandFailed(
        f"{error}" if isinstance(error, ChargeonceError) else f"Temporal failed: {error}",
        exit_code=exit_code_of(error),
        details={**details, "started": [handle.id for handle in handles], "unstarted": unstarted},
    )


def _periods(command: BackfillCommand) -> list[Period]:
    periods = list(Period.range(Period.parse(command.first), Period.parse(command.last)))
    if len(periods) > PERIODS_MAX:
        raise InvalidInput(f"{len(periods)} periods at once: {PERIODS_MAX} at most")
    if len(periods) > 1 and PERIOD_PLACEHOLDER not in command.source:
        raise InvalidInput(
            f"the source is the same for every period, which would bill its lines {len(periods)} times: "
            f"write {PERIOD_PLACEHOLDER} where it names the period"
        )
    return periods


async def _look_at(output: Output, command: BackfillCommand, period: Period) -> _Due:
    source = open_source(command.source.replace(PERIOD_PLACEHOLDER, str(period)))
    checked = await (check_source(source) if isinstance(source, FileSource) else not_looked_at(source))
    if checked.problems and not (command.skip_invalid and checked.is_readable):
        for problem in checked.problems if not output.as_json else ():
            output.notice(f"{period}: {describe_problem(problem)}")
        raise CommandFailed(
            f"{checked.rows_skipped} rows of {checked.spec} can't be billed; nothing was started: correct "
            "them, or leave these rows out with --skip-invalid",
            exit_code=EXIT_USAGE,
            details=checked.document(),
        )
    if checked.was_read and not checked.lines:
        raise CommandFailed(
            f"{checked.spec} has no line to bill: nothing was started, and {period} stays free",
            exit_code=EXIT_USAGE,
            details=checked.document(),
        )
    options = StartOptions(
        period=period,
        account=command.account,
        skip_invalid=command.skip_invalid,
        below_minimum=BelowMinimum(command.below_minimum.replace("-", "_")),
        canary=Canary(lines=command.canary_lines, declined_percent_max=command.canary_declined_percent_max),
        retry_policy=DEFAULT_POLICY
        if command.retry_policy is None
        else read_retry_policy(command.retry_policy),
        slice_lines=command.slice_lines,
        again=True,
    )
    return _Due(str(period), checked, options)


def _render_preview(document: dict[str, Any]) -> Iterable["RenderableType"]:
    yield from render_period_plans(document)
    if document["nothing_due"]:
        yield f"nothing is due for {', '.join(document['nothing_due'])}: no run is started for it"
    if len(document["nothing_due"]) < len(document["plans"]):
        yield f"Nothing was started. To charge these very plans: --approve {document['hash']}"


def _render_runs(views: list[RunView]) -> Iterable["RenderableType"]:
    rows = [
        (
            view.run_id,
            view.phase,
            view.lines,
            *(view.counts[name] for name in ("succeeded", "declined", "unknown")),
        )
        for view in views
    ]
    yield table(("run", "state", "lines", "succeeded", "declined", "unknown"), rows)
