"""`chargeonce run start`: look at the source, ask, start one run, and if wanted wait with it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker.console_output import Output, table
from worker.environment import Surroundings, is_configured, load_settings
from worker.failures import EXIT_USAGE, CommandFailed
from worker.retry_policy_file import read_retry_policy
from worker.source_check import CheckedSource, check_source, describe_problem, not_looked_at
from worker.state_folder import state_folder
from workflows.domain.counted import counted
from workflows.domain.money import format_money
from workflows.domain.periods import Period
from workflows.domain.retry_policy import DEFAULT_POLICY

if TYPE_CHECKING:
    from rich.console import RenderableType

    from worker.starting import StartOptions

STDIN = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCommand:
    """What was typed. `slice_lines` is 1 to 5,000; durations and percentages are checked by their options."""

    period: str
    source: str
    account: str | None
    again: bool = False
    yes: bool
    approve: str | None
    preview: bool
    wait: bool
    skip_invalid: bool
    below_minimum: str
    change_percent: float
    canary_lines: int
    canary_declined_percent_max: float | None
    duration_limit_minutes: float | None
    retry_policy: Path | None = None
    live: bool
    slice_lines: int


def run_start(output: Output, surroundings: Surroundings | None, command: StartCommand) -> None:
    """Start a run, or preview it.

    Raises:
        InvalidInput: The period or the source as a whole is wrong.
        CommandFailed: 2: rows or the source can't be billed, or nobody confirmed; 4: another owns the period,
            or the plan is not the one that was approved.
        RefusedToStart: Nothing to work with, or a live key without `--live`.
    """
    said = {"--yes": command.yes, "--approve": command.approve, "--preview": command.preview}
    ways = [name for name, value in said.items() if value]
    if len(ways) > 1:
        raise CommandFailed(f"{' and '.join(ways)} contradict each other: say one", exit_code=EXIT_USAGE)
    if command.canary_declined_percent_max is not None and not command.canary_lines:
        raise CommandFailed("--canary-max-declined is a rule for --canary: say both", exit_code=EXIT_USAGE)
    period = Period.parse(command.period)
    asyncio.run(_run(output, surroundings, period, command))


async def _run(
    output: Output, surroundings: Surroundings | None, period: Period, command: StartCommand
) -> None:
    checked = await _look_at(command.source)
    if checked.problems and not (command.skip_invalid and checked.is_readable):
        raise _refused_source(output, checked, command)
    if command.preview and not is_configured():
        output.notice(f"no ledger is configured: {checked.spec} alone was looked at, so there is no plan yet")
        output.result({"period": str(period), **checked.document()}, lambda: _render_source(checked))
        return
    if checked.was_read and not checked.lines:
        # It would close at once, and own the period: the file that was meant could never be billed.
        raise CommandFailed(
            f"{checked.spec} has no line to bill: nothing was started, and the period stays free",
            exit_code=EXIT_USAGE,
            details=checked.document(),
        )
    if is_configured():
        load_settings(live=command.live).refuse_unspoken_live_key()
    async with _in_surroundings(output, surroundings, checked, command):
        from worker.run_approval import start_approved  # noqa: PLC0415 - a look at a file needs no ledger

        await start_approved(output, checked, _options(period, command), command)


async def _look_at(spec: str) -> CheckedSource:
    # Slow to import, and usage errors need none of it.
    from activities.sources.opening import FileSource, open_source  # noqa: PLC0415
    from activities.sources.stdin_spool import spool_stdin  # noqa: PLC0415

    if spec == STDIN:
        spec = str(await asyncio.to_thread(spool_stdin, state_folder() / "sources"))
    source = open_source(spec)
    # A query or a program may be slow, and only the workers may have access: they name what is wrong with it.
    return await (check_source(source) if isinstance(source, FileSource) else not_looked_at(source))


def _options(period: Period, command: StartCommand) -> "StartOptions":
    from worker.starting import StartOptions  # noqa: PLC0415 - see above
    from workflows.contracts import BelowMinimum, Canary  # noqa: PLC0415 - see above

    minutes = command.duration_limit_minutes
    return StartOptions(
        period=period,
        account=command.account,
        again=command.again,
        skip_invalid=command.skip_invalid,
        below_minimum=BelowMinimum(command.below_minimum.replace("-", "_")),
        change_percent=command.change_percent,
        approve_any=command.yes,
        approved_hash=command.approve,
        canary=Canary(lines=command.canary_lines, declined_percent_max=command.canary_declined_percent_max),
        duration_limit_seconds=None if minutes is None else minutes * 60,
        retry_policy=DEFAULT_POLICY
        if command.retry_policy is None
        else read_retry_policy(command.retry_policy),
        slice_lines=command.slice_lines,
    )


@asynccontextmanager
async def _in_surroundings(
    output: Output, surroundings: Surroundings | None, checked: CheckedSource, command: StartCommand
) -> AsyncIterator[None]:
    if not command.wait or surroundings is None or is_configured():
        yield
        return
    if not (command.yes or command.approve or is_attended(output)):
        raise CommandFailed(
            "nobody is there to confirm, and the stack would end with this command: "
            "say --yes to charge, or --preview to look",
            exit_code=EXIT_USAGE,
        )
    if not checked.was_read:
        raise CommandFailed(
            "a stack that runs for one command knows only the customers of a file: start `chargeonce dev`",
            exit_code=EXIT_USAGE,
        )
    async with surroundings.for_the_duration(Path(checked.spec.rpartition(":")[2])):
        yield


def is_attended(output: Output) -> bool:
    """Return whether somebody is there to be asked."""
    return not output.as_json and sys.stdin is not None and sys.stdin.isatty()


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
        f"{counted(checked.rows_skipped, 'row')} of {checked.spec} can't be billed "
        f"({counted(len(checked.problems), 'problem')}); {advice}",
        exit_code=EXIT_USAGE,
        details=checked.document(),
    )


def _render_source(checked: CheckedSource) -> Iterable["RenderableType"]:
    rows: list[tuple[Any, ...]] = [
        (currency.upper(), lines, format_money(amount_minor, currency))
        for currency, (lines, amount_minor) in sorted(checked.totals.items())
    ]
    yield (
        f"{checked.spec}: {counted(checked.lines, 'line')}, {checked.zero_amounts} of them over nothing "
        f"(skipped); {counted(checked.rows_skipped, 'row')} can't be billed. Nothing was started."
    )
    yield table(("currency", "lines", "amount"), rows)
    for problem in checked.problems:
        yield f"skipped {describe_problem(problem)}"
