"""The approval gate of `chargeonce run start`: no run charges before somebody has seen or waved its plan."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import typer

from activities.ledger.calendar import CalendarLedger, Waiver
from activities.ledger.database import Pool, open_pool
from activities.ledger.runs import Run, RunLedger
from worker.books_view import NO_BACKSTOP
from worker.console_output import Output
from worker.environment import load_settings
from worker.failures import EXIT_REFUSED, EXIT_USAGE, CommandFailed
from worker.plan_preview import read_plan, render_plan
from worker.progress_display import progress_display
from worker.run_advice import describe_approval, describe_canary, describe_cancel
from worker.run_follow import follow_run
from worker.run_start import StartCommand, is_attended
from worker.settings import Settings
from worker.source_check import CheckedSource
from worker.start_again import describe_start
from worker.starting import StartOptions, preview_run, start_run
from worker.temporal_client import RunHandle, connect_temporal
from worker.waiting import wait_for_run
from workflows.domain.counted import counted
from workflows.domain.errors import invariant
from workflows.domain.money import format_money
from workflows.domain.plan_hash import refuse_hash

if TYPE_CHECKING:
    from rich.console import RenderableType


async def start_approved(
    output: Output, checked: CheckedSource, options: StartOptions, command: StartCommand
) -> None:
    """Preview, or start with what approval there is, and say what waits for whom.

    Raises:
        CommandFailed: 2: nobody confirmed; 4: another run owns the period, or the plan is not the one that
            was approved.
        RefusedToStart: Nothing to work with, or a live key without `--live`.
    """
    settings = load_settings(live=command.live)
    settings.refuse_unspoken_live_key()
    async with open_pool(settings.database_url.get_secret_value(), connections=4) as pool:
        start = _Start(output, pool, settings, checked, command)
        if command.preview:
            await start.preview(options)
            return
        if not (options.approve_any or options.approved_hash) and is_attended(output):
            # Nothing is started while somebody thinks: who walks away leaves no period locked.
            options = replace(options, approved_hash=await start.confirm(options))
        await start.start(options)


@dataclass(frozen=True, slots=True)
class _Start:
    output: Output
    pool: Pool
    settings: Settings
    checked: CheckedSource
    command: StartCommand

    async def preview(self, options: StartOptions) -> None:
        summary = await preview_run(self.pool, self.settings, self.checked, options)
        waiver = await CalendarLedger(self.pool).waiver(summary.account, str(options.period))
        start = describe_start(
            self.command, run_id=summary.run_id, source=self.checked.spec, approve=summary.plan_hash
        )
        document = {
            **summary.document(),
            "problems": self.checked.document()["problems"],
            "start_with": start if summary.lines else None,
            "waived": None if waiver is None else str(waiver),
        }

        def render() -> Iterable["RenderableType"]:
            yield from render_plan(document)
            yield from self._render_canary(options)
            yield from _render_waiver(waiver)
            if summary.lines:
                yield "Nothing was started. To charge this very plan:"
                yield f"  {start}"
            else:
                yield "Nothing was started, and there is nothing to approve: this plan charges nobody."

        self.output.result(document, render)

    async def confirm(self, options: StartOptions) -> str:
        """Show the plan, and return its hash if somebody says yes to it."""
        summary = await preview_run(self.pool, self.settings, self.checked, options)
        waiver = await CalendarLedger(self.pool).waiver(summary.account, str(options.period))
        plan = render_plan(summary.document())
        self.output.show([*plan, *self._render_canary(options), *_render_waiver(waiver)])
        sums = ", ".join(
            f"{counted(total.lines, 'line')} of {format_money(total.amount_minor, currency)} in all"
            for currency, total in sorted(summary.currencies.items())
        )
        money = "REAL MONEY. " if self.settings.live else ""
        question = f"{money}Charge {sums or 'nobody'} for {options.period}?"
        if not await asyncio.to_thread(typer.confirm, question, err=True):
            raise CommandFailed("not confirmed: nothing was started", exit_code=EXIT_USAGE)
        return summary.plan_hash

    async def start(self, options: StartOptions) -> None:
        client = await connect_temporal()
        handle = await start_run(client, self.pool, self.settings, self.checked, options)
        self.output.notice(f"started {handle.id}")
        if self.settings.proxy_url is None:
            self.output.notice(NO_BACKSTOP)
        if not options.approve_any:
            run = await self._wait_for_plan(handle)
            if run.phase == "planned":
                await self._hand_over(handle, run, options)
                return
        if self.command.wait:
            await follow_run(self.output, handle, self.pool, self.settings)
            return
        backstop = self.settings.proxy_url is not None
        document = {"run": handle.id, "phase": "starting", "backstop": backstop, **self.checked.document()}
        self.output.result(document, lambda: [f"to look at it: chargeonce run show {handle.id}"])

    async def _wait_for_plan(self, handle: RunHandle) -> Run:
        ledger, notice = RunLedger(self.pool), self.output.notice
        try:
            with progress_display() as display:
                await wait_for_run(ledger, handle, display=display, notice=notice, only_for_plan=True)
        except asyncio.CancelledError:
            notice(f"the run goes on without this command: chargeonce run show {handle.id}")
            raise
        return await ledger.read(handle.id)

    async def _hand_over(self, handle: RunHandle, run: Run, options: StartOptions) -> None:
        """Show the plan that the run has made, and with which command somebody else approves it."""
        invariant(run.plan_hash is not None, "a planned run has a hash")
        approval = describe_approval(run.run_id, run.plan_hash or "")
        plan = await read_plan(self.pool, run.run_id) or {}
        document: dict[str, Any] = {**plan, "phase": run.phase, "approve_with": approval}
        if options.approved_hash is not None:
            refusal = refuse_hash(run.run_id, run.plan_hash or "", options.approved_hash)
            raise CommandFailed(
                f"nothing is charged, and the run waits for approval: {refusal}. Then "
                f"`{approval}` or `{describe_cancel(run.run_id)}`",
                exit_code=EXIT_REFUSED,
                details=document,
            )

        def render() -> Iterable["RenderableType"]:
            yield from render_plan(plan)
            yield from self._render_canary(options)
            charges = "To charge this plan:" if plan.get("lines") else "It charges nobody; to let it close:"
            yield f"Nothing is charged yet: {run.run_id} waits for approval. {charges}"
            yield f"  {approval}"
            yield "To give it up:"
            yield f"  {describe_cancel(run.run_id)}"

        if self.command.wait:
            self.output.show(render())
            await follow_run(self.output, handle, self.pool, self.settings)
        else:
            self.output.result(document, render)

    @staticmethod
    def _render_canary(options: StartOptions) -> Iterable[str]:
        canary = describe_canary(options.canary.model_dump())
        return [] if canary is None else [canary]


def _render_waiver(waiver: Waiver | None) -> Iterable[str]:
    if waiver is not None:
        yield f"This period was {waiver}. Was it billed by hand? Then this would charge it again."
