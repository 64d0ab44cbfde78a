"""`chargeonce schedule sweep`: find the firings that were missed, show what they come to, and decide.

After an outage several periods may be due at once, and a customer who is charged for all of them in one night
notices. So the default policy is to ask: nothing starts before a person has said so, period by period.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from temporalio.client import Client

from activities.accounts import Accounts
from activities.launch import request_of, source_of
from activities.ledger.calendar import CalendarLedger, PeriodDecision
from activities.ledger.database import Pool, open_pool
from activities.ledger.planning import PlanLedger
from activities.plan import Planner
from worker.console_output import Output, table
from worker.environment import load_settings
from worker.failures import EXIT_FAILED, EXIT_USAGE, CommandFailed
from worker.period_plans import PeriodPlans, render_period_plans
from worker.reasons import read_reason
from worker.run_start import is_attended
from worker.schedules.launching import launch_period
from worker.schedules.missed import MissedFiring, find_missed
from worker.schedules.preview import choose
from worker.schedules.schedule_file import read_schedules
from worker.settings import Settings
from worker.temporal_client import connect_temporal
from worker.whoami import who as whoever_types
from worker.wiring import open_accounts
from workflows.contracts import Decision
from workflows.domain.counted import counted
from workflows.domain.errors import ChargeonceError, InvalidInput
from workflows.domain.money import format_money

if TYPE_CHECKING:
    from rich.console import RenderableType


DECIDED = frozenset({"started", "duplicate", "waived"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCommand:
    """What was typed. `yes` has periods, each with the hash of the plan that is approved, or without."""

    path: Path
    name: str | None
    policy: str | None
    yes: Mapping[str, str | None]
    waive: Sequence[str]
    who: str | None
    reason: str | None
    customers: Path | None
    live: bool


@dataclass(slots=True)
class Swept:
    """One missed firing, and what becomes of it: undecided, started, duplicate, refused, failed or waived."""

    missed: MissedFiring
    plan_hash: str | None = None
    problem: str | None = None
    outcome: str = "undecided"
    run_id: str | None = None
    detail: str | None = None

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        missed = self.missed
        return {
            "schedule": missed.entry.name,
            "account": missed.entry.account,
            "period": missed.period,
            "was_due": missed.firing.at,
            "late_seconds": round(missed.late.total_seconds()),
            "plan_hash": self.plan_hash,
            "problem": self.problem,
            "outcome": self.outcome,
            "run": self.run_id,
            "detail": self.detail,
        }


async def sweep_schedules(output: Output, command: SweepCommand) -> None:
    """Print what was missed with what each customer would be charged, and start what is decided.

    Raises:
        InvalidInput: The file is wrong, or a decision names no period that was missed, or one that several
            schedules have missed; or the reason is blank.
        typer.Exit: 1: something that was missed is undecided, or was not started.
    """
    entries = choose(read_schedules(command.path), command.name)
    if command.reason is not None:
        command = replace(command, reason=read_reason(command.reason))
    elif command.waive:
        raise CommandFailed(
            "--waive needs a --reason: neither a sweep nor a schedule bills the period after it",
            exit_code=EXIT_USAGE,
        )
    settings = load_settings(live=command.live)
    settings.refuse_unspoken_live_key()
    async with (
        open_pool(settings.database_url.get_secret_value(), connections=4) as pool,
        open_accounts(settings, pool) as accounts,
    ):
        found = [Swept(missed) for missed in await find_missed(CalendarLedger(pool), entries)]
        refuse_unclear(command, [one.missed for one in found])
        sweep = _Sweep(
            output=output, pool=pool, accounts=accounts, settings=settings, command=command, found=found
        )
        await sweep.preview()
        await sweep.decide()
    document = sweep.document()
    output.result(document, lambda: _render(document))
    if any(one.outcome in {"undecided", "failed"} for one in found):
        raise typer.Exit(EXIT_FAILED)


class _Sweep:
    def __init__(
        self,
        *,
        output: Output,
        pool: Pool,
        accounts: Accounts,
        settings: Settings,
        command: SweepCommand,
        found: Sequence[Swept],
    ) -> None:
        self._output = output
        self._ledger = CalendarLedger(pool)
        self._planner = Planner(ledger=PlanLedger(pool), accounts=accounts)
        self._settings = settings
        self._command = command
        self._found = found
        self._plans = PeriodPlans()
        self._client: Client | None = None

    def document(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return {**self._plans.document(), "missed": [one.document() for one in self._found]}

    async def preview(self) -> None:
        """Plan every missed period, as its run would; where that can't be done, say why."""
        for one in self._found:
            entry, period = one.missed.entry, one.missed.firing.period
            order = entry.order(timing=self._settings.timing, slices_at_once=self._settings.slices_at_once)
            try:
                source = source_of(order, period)
                next_run = await self._ledger.next_run(entry.account, str(period))
                request = request_of(
                    order, period, source, await source.fingerprint(), run_id=next_run.run_id
                )
                summary, customers = await self._planner.preview_customers(request)
            except ChargeonceError as error:
                one.problem = str(error)
                continue
            one.plan_hash = summary.plan_hash
            self._plans.add(one.missed.label, summary, customers)
        if self._command.customers is not None:
            self._plans.write_customers(self._command.customers)

    async def decide(self) -> None:
        """Do with each missed firing what its policy or a person says.

        Under `latest` the newest comes first: the others are waived for its sake, so only once it is decided.
        """
        newest = {one.missed.entry.name: one for one in self._found}

        def waits_for_newest(one: Swept) -> bool:
            return self._policy(one) == "latest" and newest[one.missed.entry.name] is not one

        asked: list[Swept] = []
        for one in sorted(self._found, key=waits_for_newest):
            policy, period = self._policy(one), one.missed.period
            if period in self._command.waive:
                await self._waive(one, self._command.reason or "")
            elif period in self._command.yes:
                await self._start(one, "a person said so", self._command.yes[period])
            elif policy == "all" or (policy == "latest" and newest[one.missed.entry.name] is one):
                await self._start(one, f"the policy is {policy}", None)
            elif policy == "latest" and newest[one.missed.entry.name].outcome not in DECIDED:
                one.detail = "not waived: the latest could not be started"
            elif policy == "latest":
                await self._waive(one, "the policy is latest, and this one was not")
            else:
                asked.append(one)
        if asked and is_attended(self._output):
            await self._ask(asked)

    def _policy(self, one: Swept) -> str:
        return self._command.policy or one.missed.entry.missed

    async def _ask(self, asked: Sequence[Swept]) -> None:
        self._output.show(_render(self.document()))
        for one in asked:
            if one.plan_hash is None:
                continue
            summary = self._plans.summaries[one.missed.label]
            sums = ", ".join(
                f"{counted(plan.lines, 'line')} of {format_money(plan.amount_minor, currency)}"
                for currency, plan in summary.currencies.items()
            )
            money = "REAL MONEY. " if self._settings.live else ""
            question = f"{money}{one.missed.label}: charge {sums or 'nobody'} now?"
            if await asyncio.to_thread(typer.confirm, question, err=True):
                await self._start(one, "a person said so", one.plan_hash)

    async def _waive(self, one: Swept, reason: str) -> None:
        await self._record(one, PeriodDecision.WAIVE, reason)
        one.outcome, one.detail = "waived", reason
        self._tell(one)

    async def _start(self, one: Swept, because: str, approved_hash: str | None) -> None:
        if approved_hash is not None and approved_hash != one.plan_hash:
            one.outcome = "failed"
            one.detail = one.problem or (
                f"its plan is {one.plan_hash} and not {approved_hash}, so nothing was started: "
                "look at what is due again"
            )
            self._tell(one)
            return
        entry, reason = one.missed.entry, self._command.reason or f"found missed by the sweep; {because}"
        try:
            self._client = self._client or await connect_temporal()
            await self._record(one, PeriodDecision.BILL, reason)
            report = await launch_period(
                self._client,
                entry.order(timing=self._settings.timing, slices_at_once=self._settings.slices_at_once),
                one.missed.period,
                decided_by=Decision(who=self._who, reason=reason),
                approved_hash=approved_hash,
                task_queue=self._settings.task_queue,
            )
        except ChargeonceError as error:
            one.outcome, one.detail = "failed", str(error)
        else:
            one.outcome, one.run_id, one.detail = report.outcome.value, report.run_id, report.reason
        self._tell(one)

    def _tell(self, one: Swept) -> None:
        self._output.notice(f"{one.missed.label}: {one.outcome} {one.run_id or one.detail or ''}".rstrip())

    async def _record(self, one: Swept, decision: PeriodDecision, reason: str) -> None:
        entry = one.missed.entry
        await self._ledger.decide(
            entry.account, one.missed.period, decision, schedule=entry.name, who=self._who, reason=reason
        )

    @property
    def _who(self) -> str:
        return self._command.who or whoever_types()


def parse_yes(words: Sequence[str]) -> dict[str, str | None]:
    """Return the periods of `--yes PERIOD` and `--yes PERIOD=HASH`.

    Raises:
        InvalidInput: The hash after `=` is empty, as from a shell variable that is not set.
    """
    said: dict[str, str | None] = {}
    for word in words:
        period, has_hash, plan_hash = word.partition("=")
        if has_hash and not plan_hash:
            raise InvalidInput(f"--yes {word} has no hash after the equals sign")
        said[period] = plan_hash if has_hash else None
    return said


def refuse_unclear(command: SweepCommand, missed: Sequence[MissedFiring]) -> None:
    """Raise InvalidInput unless each period of `--yes` and `--waive` is one missed firing, and said once."""
    if both := sorted(set(command.yes) & set(command.waive)):
        raise InvalidInput(f"{', '.join(both)} can't be both billed (--yes) and waived (--waive)")
    said = (*command.yes, *command.waive)
    fitting = {period: [one for one in missed if one.period == period] for period in said}
    if strangers := [period for period, fits in fitting.items() if not fits]:
        raise InvalidInput(f"{', '.join(strangers)} was not missed: see `chargeonce schedule sweep`")
    for period, fits in fitting.items():
        if len(fits) > 1:
            names = ", ".join(one.entry.name for one in fits)
            raise InvalidInput(
                f"{period} was missed by several schedules ({names}), so nothing was decided: "
                "say which with --schedule NAME"
            )


def _render(document: Mapping[str, Any]) -> Iterable["RenderableType"]:
    if not document["missed"]:
        yield "no firing was missed: every period that was due has a run, or was waived"
        return
    rows = [
        (
            one["schedule"],
            one["period"],
            f"{one['was_due']:%Y-%m-%d %H:%M} UTC",
            f"{one['late_seconds'] / 86_400:.1f} days",
            one["outcome"],
            one["run"] or one["problem"] or one["detail"],
        )
        for one in document["missed"]
    ]
    yield table(("schedule", "period", "was due", "late", "", ""), rows, title="missed firings")
    yield from render_period_plans(document)
    for one in document["missed"]:
        if one["outcome"] == "undecided":
            approval = f"={one['plan_hash']}" if one["plan_hash"] else ""
            yield (
                f"{one['schedule']} {one['period']} is undecided: "
                f"--schedule {one['schedule']} --yes {one['period']}{approval} bills it, "
                f"--schedule {one['schedule']} --waive {one['period']} --reason ... does not"
            )
