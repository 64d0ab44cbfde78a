"""The production commands of `chargeonce`. Every command only parses; what it does is in the module it names.

Heavy modules are imported by the command that needs them, so that --help and usage errors answer at once.
"""

import asyncio
from typing import Annotated

import typer

from worker import start_options
from worker.codec_commands import add_codec_commands
from worker.console_output import Output
from worker.ending import run_to_the_end
from worker.export_commands import add_export_commands
from worker.failures import reported
from worker.help_examples import examples
from worker.notify_commands import notifications_app
from worker.proxy_commands import add_proxy_commands
from worker.reconcile_commands import add_reconcile_commands
from worker.refund_commands import add_refund_commands
from worker.restore_commands import add_restore_command
from worker.retry_policy_commands import retry_policy_app
from worker.review_commands import add_review_commands
from worker.schedule_commands import add_schedule_commands
from worker.web_commands import add_web_commands
from workflows.domain.errors import InvalidInput

# ruff: noqa: PLC0415 - see the docstring

EXIT_CODES = "Exit codes: 0 good, 2 usage, 3 drift or duplicates found, 4 refused to start, 1 anything else."


app = typer.Typer(
    help="Durable billing runs over Stripe: every customer charged once, whatever dies on the way.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
run_app = typer.Typer(
    help="Start billing runs, look at them, decide about them.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(run_app, name="run")
add_proxy_commands(app)
add_schedule_commands(app)
add_reconcile_commands(app)
add_web_commands(app)
add_codec_commands(app)
add_review_commands(app)
add_refund_commands(app)
add_restore_command(app)
add_export_commands(app)
app.add_typer(notifications_app, name="notifications")
app.add_typer(retry_policy_app, name="retry-policy")

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
RunId = Annotated[
    str, typer.Argument(metavar="RUN", help="Such as billing-run/acct_1/2031-03: see `run list`.")
]
Live = Annotated[bool, typer.Option("--live", help="Say out loud that a live key moves real money.")]


@run_app.command(
    "start",
    epilog=examples(
        "run start --period 2031-03 --source charges.csv --preview",
        "run start --period 2031-03 --source charges.csv --approve 3f2a9c... --canary 100",
        "run start --period 2031-03 --source sql:billing:due.sql --yes --wait --json",
    ),
)
def start(
    context: typer.Context,
    *,
    period: start_options.Month,
    source: start_options.SourceSpec,
    account: start_options.Account = None,
    again: start_options.Again = False,
    yes: start_options.Yes = False,
    approve: start_options.Approve = None,
    preview: start_options.Preview = False,
    wait: start_options.Wait = False,
    canary: start_options.CanaryLines = 0,
    canary_max_declined: start_options.CanaryMaxDeclined = None,
    below_minimum: start_options.SmallLines = "charge",
    change_percent: start_options.ChangePercent = 20.0,
    duration_limit: start_options.DurationLimit = None,
    retry_policy: start_options.RetryPolicyFile = None,
    skip_invalid: start_options.SkipInvalid = False,
    live: Live = False,
    slice_size: start_options.SliceSize = 500,
    as_json: AsJson = False,
) -> None:
    """Charge everyone in a source once. A second start of a period charges nobody and exits 4.

    With --again it bills what the earlier runs of the period did not: never a line that was paid.

    Without --yes or --approve the plan has to be approved: at a terminal this command asks first; elsewhere
    the run waits, nothing is charged, and the command says how to approve it.
    """
    from worker.run_start import StartCommand, run_start

    output = Output(as_json=as_json)
    command = StartCommand(
        period=period, source=source, account=account, again=again, yes=yes, approve=approve,
        preview=preview, wait=wait, skip_invalid=skip_invalid,
        below_minimum=below_minimum, change_percent=change_percent,
        canary_lines=canary, canary_declined_percent_max=canary_max_declined,
        duration_limit_minutes=duration_limit, retry_policy=retry_policy, live=live, slice_lines=slice_size,
    )  # fmt: skip
    with reported(output):
        run_start(output, context.obj, command)


@run_app.command("list", epilog=examples("run list", "run list --limit 5 --json"))
def list_(
    *,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="At most so many, newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List runs with where their lines stand."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.run_read import list_runs

        asyncio.run(list_runs(output, limit=limit))


@run_app.command("show", epilog=examples("run show billing-run/acct_1/2031-03 --json"))
def show(run: RunId, *, as_json: AsJson = False) -> None:
    """Show one run: counts that add up, money by currency and state, and why what is open waits."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.run_read import show_run

        asyncio.run(show_run(output, run))


@run_app.command("tick", epilog=examples("run tick billing-run/acct_1/2031-03 --wait"))
def tick(
    run: RunId,
    *,
    wait: Annotated[
        bool, typer.Option("--wait", help="Then show progress as `run start --wait` does.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Wake a run now: it asks the ledger what is due, instead of at its next timer."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.run_tick import tick_run

        asyncio.run(tick_run(output, run, wait=wait))


@app.command(
    "verify",
    epilog=examples(
        "verify billing-run/acct_1/2031-03 --json", "verify --account acct_1 --since 90d", "verify --all"
    ),
)
def verify_(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="One run: see `run list`.")] = None,
    *,
    account: Annotated[str | None, typer.Option(help="Every run of this account.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every run of every account.")] = False,
    since: Annotated[
        str | None, typer.Option(help="Only runs that began since: an age such as 90d, or a time.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the ledger with what Stripe lists. Exits 0 when clean, 3 when anything differs. Only reads.

    A read-only role of the database (`migrate --auditor-role`) and a read-only key of Stripe's are enough.
    """
    output = Output(as_json=as_json)
    with reported(output):
        from worker.proof import Scope, verify

        if (run is not None) + (account is not None) + everything != 1:
            raise InvalidInput("say what to verify, once: a RUN, --account ACCOUNT, or --all")
        if run is not None and since is not None:
            raise InvalidInput("--since goes with --account or --all: a run is verified whole")
        asyncio.run(verify(output, Scope(run_id=run, account=account, since=since)))


@app.command(
    "explain",
    epilog=examples("explain 3f2a9c", "explain cus_42/base --run billing-run/acct_1/2031-03 --json"),
)
def explain_(
    charge: Annotated[
        str,
        typer.Argument(
            metavar="CHARGE", help="Its id or the first 6 digits of it, pi_..., customer, or customer/line."
        ),
    ],
    *,
    run: Annotated[str | None, typer.Option(help="Look only among the charges of this run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Tell one charge's whole story: attempts, keys, versions, answers, and the reason for every decision."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.proof import explain

        asyncio.run(explain(output, charge, run_id=run))


@app.command("worker", epilog=examples("worker", "worker --live"))
def worker_(*, live: Live = False) -> None:
    """Run one worker process until SIGTERM or Ctrl-C, then finish what is in flight and stop."""
    with reported(Output(as_json=False)):
        import uvloop

        from worker.environment import load_settings
        from worker.temporal import run_worker

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_worker(load_settings(live=live)))


@app.command(
    "migrate",
    epilog=examples(
        "migrate --database-url postgresql://owner@db/ledger --app-role chargeonce --proxy-role cap",
        "migrate --web-role hooks --auditor-role audit",
    ),
)
def migrate_(
    *,
    database_url: Annotated[
        str | None,
        typer.Option(
            envvar=["CHARGEONCE_OWNER_DATABASE_URL", "CHARGEONCE_DATABASE_URL"],
            show_envvar=True,
            help="Where the ledger is, as the owner of its schema.",
        ),
    ] = None,
    app_role: Annotated[
        str | None, typer.Option(help="The role that workers log in with; it gets what they need.")
    ] = None,
    proxy_role: Annotated[
        str | None, typer.Option(help="The role that the spend-cap proxy logs in with; it can charge nobody.")
    ] = None,
    web_role: Annotated[
        str | None, typer.Option(help="The role that the webhook receiver logs in with; it can keep events.")
    ] = None,
    auditor_role: Annotated[
        str | None, typer.Option(help="A role for `verify`, `explain` and the like; it can only read.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Bring the ledger's schema to this version. Doing it again changes nothing."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.migration import Roles, migrate_ledger

        roles = Roles(app=app_role, proxy=proxy_role, web=web_role, auditor=auditor_role)
        asyncio.run(migrate_ledger(output, database_url, roles))


# Their module takes run_app from here.
from worker import run_commands  # noqa: E402, F401


def main() -> None:
    """Run the production commands alone, without the development stack, and end the process."""
    run_to_the_end(app)
