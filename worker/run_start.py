"""`chargeonce run start`: look at the file, ask, start one run, and if wanted wait with it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from worker.console_output import Output, table
from worker.environment import Surroundings, is_configured, load_settings
from worker.failures import EXIT_USAGE, CommandFailed
from worker.source_check import CheckedSource, check_source, describe_problem
from workflows.domain.money import format_money
from workflows.domain.periods import Period

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCommand:
    """What was typed. `slice_lines` is 1 to 5,000."""

    period: str
    source: Path
    yes: bool
    preview: bool
    wait: bool
    skip_invalid: bool
    live: bool
    slice_lines: int


def run_start(output: Output, surroundings: Surroundings | None, command: StartCommand) -> None:
    """Start a run, or preview it.

    Raises:
        InvalidInput: The period or the file as a whole is wrong.
        CommandFailed: 2: rows or the file can't be billed, or nobody confirmed; 4: another owns the period.
        RefusedToStart: Nothing to work with, or a live key without `--live`.
    """
    if command.yes and command.preview:
        raise CommandFailed("--yes starts the run and --preview does not: say one", exit_code=EXIT_USAGE)
    period = Period.parse(command.period)
    checked = check_source(command.source)
    if checked.problems and not (command.skip_invalid and checked.is_readable):
        raise _refused_source(output, checked, command)
    if command.preview:
        output.result({"period": str(period), **checked.document()}, lambda: _render_preview(checked))
        return
    if not checked.lines:
        # It would close at once, and own the period: the file that was meant could never be billed.
        raise CommandFailed(
            f"{checked.path} has no line to bill: nothing was started, and the period stays free",
            exit_code=EXIT_USAGE,
            details=checked.document(),
        )
    if is_configured():
        load_settings(live=command.live).refuse_unspoken_live_key()
    if not command.yes:
        _confirm(output, period, checked, live=command.live)
    asyncio.run(_start(output, surroundings, period, checked, command))


async def _start(
    output: Output,
    surroundings: Surroundings | None,
    period: Period,
    checked: CheckedSource,
    command: StartCommand,
) -> None:
    from activities.ledger.database import open_pool  # noqa: PLC0415 - a preview needs no ledger
    from worker.run_follow import follow_run  # noqa: PLC0415 - see above
    from worker.starting import StartOptions, start_run  # noqa: PLC0415 - see above
    from worker.temporal_client import connect_temporal  # noqa: PLC0415 - see above

    async with _in_surroundings(surroundings, checked, wait=command.wait):
        settings = load_settings(live=command.live)
        settings.refuse_unspoken_live_key()
        async with open_pool(settings.database_url.get_secret_value(), connections=2) as pool:
            options = StartOptions(
                period=period, skip_invalid=command.skip_invalid, slice_lines=command.slice_lines
            )
            handle = await start_run(await connect_temporal(), pool, settings, checked, options)
            if command.wait:
                output.notice(f"started {handle.id}")
                await follow_run(output, handle, pool, settings)
                return
            document = {"run": handle.id, "phase": "starting", **checked.document()}
            output.result(document, lambda: [f"started {handle.id}: chargeonce run show {handle.id}"])


@asynccontextmanager
async def _in_surroundings(
    surroundings: Surroundings | None, checked: CheckedSource, *, wait: bool
) -> AsyncIterator[None]:
    if wait and surroundings is not None and not is_configured():
        async with surroundings.for_the_duration(checked.path):
            yield
    else:
        yield


def _refused_source(output: Output, checked: CheckedSource, command: StartCommand) -> CommandFailed:
    if not output.as_json:
        for problem in checked.problems:
            output.notice(describe_problem(problem))
    if not checked.is_readable:
        advice = "where a row ends is a guess, so no row of it is billed, with --skip-invalid neither"
    elif command.preview:
        advice = "correct them, or preview and start with --skip-invalid to leave these rows out"
    else:
        advice = "nothing was started: correct them, or leave these rows out with --skip-invalid"
    return CommandFailed(
        f"{checked.rows_skipped} rows of {checked.path} can't be billed "
        f"({len(checked.problems)} problems); {advice}",
        exit_code=EXIT_USAGE,
        details=checked.document(),
    )


def _confirm(output: Output, period: Period, checked: CheckedSource, *, live: bool) -> None:
    if output.as_json or not sys.stdin.isatty():
        raise CommandFailed(
            "nobody is there to confirm: say --yes to charge, or --preview to look", exit_code=EXIT_USAGE
        )
    sums = ", ".join(
        f"{lines} lines of {format_money(amount_minor, currency)} in all"
        for currency, (lines, amount_minor) in sorted(checked.totals.items())
    )
    question = f"{'REAL MONEY. ' if live else ''}Charge {checked.lines} lines for {period}: {sums}?"
    if not typer.confirm(question, err=True):
        raise CommandFailed("not confirmed: nothing was started", exit_code=EXIT_USAGE)


def _render_preview(checked: CheckedSource) -> Iterable["RenderableType"]:
    rows: list[tuple[Any, ...]] = [
        (currency.upper(), lines, format_money(amount_minor, currency))
        for currency, (lines, amount_minor) in sorted(checked.totals.items())
    ]
    yield (
        f"{checked.path}: {checked.lines} lines, {checked.zero_amounts} of them over nothing (skipped); "
        f"{checked.rows_skipped} rows can't be billed. Nothing was started."
    )
    yield table(("currency", "lines", "amount"), rows)
    for problem in checked.problems:
        yield f"skipped {describe_problem(problem)}"
