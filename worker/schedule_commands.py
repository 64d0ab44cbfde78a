"""`chargeonce schedule` and `chargeonce backfill`: what is billed when, and what was not billed in time."""

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import typer

from worker import start_options
from worker.console_output import Output
from worker.failures import reported
from worker.help_examples import examples

# ruff: noqa: PLC0415 - heavy modules are imported by the command that needs them

schedule_app = typer.Typer(
    help="Billing and reconciling by the calendar: a file says what is due when, and these keep to it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
Live = Annotated[bool, typer.Option("--live", help="Say out loud that a live key moves real money.")]
File = Annotated[
    Path,
    typer.Option(
        "--file",
        envvar="CHARGEONCE_SCHEDULES",
        show_envvar=True,
        help="The file of schedules (TOML), as `schedule example` prints one.",
    ),
]
Name = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its name in the file.")]
OnlyName = Annotated[str | None, typer.Option("--schedule", help="Only the schedule of this name.")]
Reason = Annotated[str, typer.Option(help="Why: it stays with the schedule.")]
Who = Annotated[str | None, typer.Option(help="Who decides; left out, you@this-host.")]
CustomersFile = Annotated[
    Path | None, typer.Option("--customers", help="Write what every customer is charged to this CSV file.")
]


@schedule_app.command("example", epilog=examples("schedule example"))
def example_() -> None:
    """Print a file of schedules with every key, its default and what it means."""
    from worker.schedules.example import EXAMPLE, RECONCILE_EXAMPLE

    print(f"{EXAMPLE}{RECONCILE_EXAMPLE}", end="")


@schedule_app.command("sync", epilog=examples("schedule sync --file schedules.toml --json"))
def sync_(*, file: File, as_json: AsJson = False) -> None:
    """Make Temporal's schedules what the file says, and say what changed. Doing it again changes nothing.

    A schedule that somebody paused stays paused. One that is no longer in the file is removed, if it was made
    by this command for the same task queue.
    """
    output = Output(as_json=as_json)
    with reported(output):
        from worker.schedules.sync import sync_schedules

        asyncio.run(sync_schedules(output, file))


@schedule_app.command("list", epilog=examples("schedule list", "schedule list --json"))
def list_(*, as_json: AsJson = False) -> None:
    """List the schedules that Temporal has: what each starts, when it fires next, whether it is paused."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.schedules.operate import list_schedules

        asyncio.run(list_schedules(output))


@schedule_app.command(
    "preview",
    epilog=examples(
        "schedule preview --file schedules.toml",
        "schedule preview --file schedules.toml --schedule monthly --count 6 --after 2031-02-01 --json",
    ),
)
def preview_(
    *,
    file: File,
    schedule: OnlyName = None,
    count: Annotated[int, typer.Option(min=1, max=1_000, help="So many firings of each.")] = 24,
    after: Annotated[
        str | None, typer.Option(help="From this date or time on; left out, from now on.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the next firings with their UTC offsets and what each bills or compares, from the file alone."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.schedules.preview import preview_schedules

        asyncio.run(preview_schedules(output, file, name=schedule, count=count, after=after))


@schedule_app.command(
    "sweep",
    epilog=examples(
        "schedule sweep --file schedules.toml",
        "schedule sweep --file schedules.toml --yes 2031-03=3f2a9c... --json",
        "schedule sweep --file schedules.toml --waive 2031-02 --reason 'billed by hand'",
    ),
)
def sweep_(
    *,
    file: File,
    schedule: OnlyName = None,
    policy: Annotated[
        Literal["ask", "latest", "all"] | None,
        typer.Option(help="What becomes of what was missed; left out, what the file says."),
    ] = None,
    yes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PERIOD[=HASH]",
            help="Bill this period now; with the hash of its plan, that plan is approved. May be repeated.",
        ),
    ] = None,
    waive: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PERIOD", help="Bill this period neither by a sweep nor by a schedule. May be repeated."
        ),
    ] = None,
    who: Who = None,
    reason: Annotated[
        str | None, typer.Option(help="Why; needed with --waive. It stays in the ledger.")
    ] = None,
    customers: CustomersFile = None,
    live: Live = False,
    as_json: AsJson = False,
) -> None:
    """Find periods that were due and have no run, with what each customer would be charged.

    Nothing is started that nobody decided: exit code 1 while something is undecided.
    """
    output = Output(as_json=as_json)
    with reported(output):
        from worker.schedules.sweep import SweepCommand, parse_yes, sweep_schedules

        command = SweepCommand(
            path=file, name=schedule, policy=policy, yes=parse_yes(yes or []), waive=waive or [], who=who,
            reason=reason, customers=customers, live=live,
        )  # fmt: skip
        asyncio.run(sweep_schedules(output, command))


@schedule_app.command("pause", epilog=examples("schedule pause monthly --reason 'prices change'"))
def pause_(schedule: Name, *, reason: Reason, who: Who = None, as_json: AsJson = False) -> None:
    """Let a schedule fire no more, whatever `sync` does, until somebody resumes it."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.schedules.operate import pause_schedule

        asyncio.run(pause_schedule(output, schedule, who=who, reason=reason))


@schedule_app.command("resume", epilog=examples("schedule resume monthly --reason 'prices are in'"))
def resume_(schedule: Name, *, reason: Reason, who: Who = None, as_json: AsJson = False) -> None:
    """Let a paused schedule fire again, from now on; what it missed is the sweep's to find."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.schedules.operate import resume_schedule

        asyncio.run(resume_schedule(output, schedule, who=who, reason=reason))


def add_schedule_commands(app: typer.Typer) -> None:
    """Add `schedule` and `backfill`."""
    app.add_typer(schedule_app, name="schedule")
    app.command(
        "backfill",
        epilog=examples(
            "backfill --from 2031-01 --to 2031-03 --source 'exports/{period}.csv' --preview",
            "backfill --from 2031-01 --to 2031-03 --source 'exports/{period}.csv' --approve 3f2a9c...",
        ),
    )(backfill_)


def backfill_(
    *,
    first: Annotated[str, typer.Option("--from", help="The first period.")],
    last: Annotated[str, typer.Option("--to", help="The last period, of the same kind.")],
    source: Annotated[
        str, typer.Option(help="As in `run start`, with {period} in the place of the period's label.")
    ],
    account: start_options.Account = None,
    yes: start_options.Yes = False,
    approve: Annotated[
        str | None, typer.Option(metavar="HASH", help="Charge only the plans of this hash, as previewed.")
    ] = None,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show what every customer would be charged; start nothing.")
    ] = False,
    together: Annotated[
        bool, typer.Option("--together", help="Start all runs at once, and not one after another.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="With --together: wait for all of them.")] = False,
    skip_invalid: start_options.SkipInvalid = False,
    below_minimum: start_options.SmallLines = "charge",
    canary: start_options.CanaryLines = 0,
    canary_max_declined: start_options.CanaryMaxDeclined = None,
    retry_policy: start_options.RetryPolicyFile = None,
    slice_size: start_options.SliceSize = 500,
    customers: CustomersFile = None,
    live: Live = False,
    as_json: AsJson = False,
) -> None:
    """Bill several past periods, each as a run of its own, after one look at what each customer would pay.

    Runs go one after another, until one is held; nothing that an earlier run charged is charged again.
    Nothing starts without --yes, --approve, or somebody at the terminal who says so.
    """
    output = Output(as_json=as_json)
    with reported(output):
        from worker.backfill import BackfillCommand, run_backfill

        command = BackfillCommand(
            first=first, last=last, source=source, account=account, yes=yes, approve=approve, preview=preview,
            together=together, wait=wait, skip_invalid=skip_invalid, below_minimum=below_minimum,
            canary_lines=canary, canary_declined_percent_max=canary_max_declined, retry_policy=retry_policy,
            slice_lines=slice_size, live=live, customers=customers,
        )  # fmt: skip
        asyncio.run(run_backfill(output, command))
