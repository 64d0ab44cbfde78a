"""The command `chargeonce`: the production commands, and what runs them all on one machine.

A command that finds no ledger in its environment is pointed at the stack that runs in this home, if any.
"""

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from worker.cli import EXIT_CODES, AsJson
from worker.cli import app as production_app
from worker.console_output import Output
from worker.ending import run_to_the_end
from worker.failures import reported
from worker.help_examples import examples

# ruff: noqa: PLC0415 - heavy modules are imported by the command that needs them

_NEEDS_NO_STACK = frozenset({"dev", "demo", "bench", "proxy"})
_FORWARDED = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

NoProxy = Annotated[
    bool, typer.Option("--no-proxy", help="Without the spend-cap proxy: workers hold the Stripe key.")
]

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False
)
app.add_typer(production_app)
clock_app = typer.Typer(
    help="The time of ledger and simulator, which move together.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(clock_app, name="clock")


@app.callback(epilog=f"With nothing configured, commands use the stack of `chargeonce dev`. {EXIT_CODES}")
def attach(context: typer.Context) -> None:
    """Durable billing runs over Stripe: every customer charged once, whatever dies on the way."""
    if context.invoked_subcommand in _NEEDS_NO_STACK or context.resilient_parsing:
        return
    with reported(Output(as_json=False)):
        from deploy.attach import EmbeddedStack, attach_to_running_stack

        attach_to_running_stack()
        context.obj = EmbeddedStack()


@app.command(
    "dev", epilog=examples("dev", "dev --workers 2 --rate 100", "dev --home ./stack --sim-latency-ms 50")
)
def dev(
    *,
    workers: Annotated[int, typer.Option(min=0, max=64, help="Worker processes.")] = 1,
    rate: Annotated[
        float | None,
        typer.Option(min=0.1, help="Requests a second per account and endpoint; 25 if left out."),
    ] = None,
    home: Annotated[
        Path | None, typer.Option(help="Where state is kept between runs; $CHARGEONCE_HOME if left out.")
    ] = None,
    sim_latency_ms: Annotated[
        float | None, typer.Option(min=0, help="Time that each request to the simulator takes.")
    ] = None,
    sim_rate: Annotated[
        float | None, typer.Option(min=0, help="Requests a second that the simulator allows per endpoint.")
    ] = None,
    timing: Annotated[
        str, typer.Option(help="How soon a dead worker is noticed: production, demo or tests.")
    ] = "production",
    headless: Annotated[bool, typer.Option("--headless", help="Without Temporal's web UI.")] = False,
    no_proxy: NoProxy = False,
    as_json: AsJson = False,
) -> None:
    """PostgreSQL, Temporal, simulated Stripe and workers in one terminal; one Ctrl-C stops all."""
    output = Output(as_json=as_json)
    with reported(output):
        from deploy.dev import DevCommand, run_dev
        from deploy.stack_info import home_directory

        command = DevCommand(
            home=home or home_directory(), workers=workers, rate_per_second=rate,
            simulator_latency_ms=sim_latency_ms, simulator_rate_per_second=sim_rate,
            settings={"timing": timing}, headless=headless, proxy=not no_proxy,
        )  # fmt: skip
        asyncio.run(run_dev(output, command))


@app.command("demo", epilog=examples("demo", "demo --json", "demo --customers 100 --keep"))
def demo(
    *,
    customers: Annotated[
        int | None, typer.Option(min=20, help="Bill only so many customers of the sample.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack's folder, with all logs.")] = False,
    no_proxy: NoProxy = False,
    as_json: AsJson = False,
) -> None:
    """The whole promise in one minute: a real file is billed, a worker is killed halfway, all pay once."""
    output = Output(as_json=as_json)
    with reported(output):
        from deploy.demo import run_demo

        asyncio.run(run_demo(output, customers_max=customers, keep=keep, proxy=not no_proxy))


@clock_app.command("show", epilog=examples("clock show --json"))
def show(*, as_json: AsJson = False) -> None:
    """Show the time that ledger and simulator have."""
    output = Output(as_json=as_json)
    with reported(output):
        from deploy.attach import need_running_stack
        from deploy.moving_clock import show_clock

        asyncio.run(show_clock(output, need_running_stack()))


@clock_app.command("advance", epilog=examples("clock advance 25h", "clock advance 1h30m --json"))
def advance(
    duration: Annotated[str, typer.Argument(help="Such as 90s, 15m, 25h, 3d or 1h30m.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Move both clocks on, to the same instant. Then wake a run with `run tick RUN`."""
    output = Output(as_json=as_json)
    with reported(output):
        from deploy.attach import need_running_stack
        from deploy.moving_clock import advance_clocks
        from worker.durations import parse_duration_seconds

        seconds = parse_duration_seconds(duration)
        asyncio.run(advance_clocks(output, need_running_stack(), seconds))


@app.command("sim", context_settings=_FORWARDED)
def sim(context: typer.Context) -> None:
    """A stateful Stripe on this machine: run one, seed it, move its clock, break it, read its book."""
    from deploy.stripe_sim.cli import app as simulator_app

    simulator_app(args=context.args, prog_name="chargeonce sim")


@app.command("bench", context_settings=_FORWARDED)
def bench(context: typer.Context) -> None:
    """Measure a durable run against unsafe and other ways of doing it, in one run of the command."""
    with reported(Output(as_json="--json" in context.args)):
        import_module("deploy.bench.cli").app(args=context.args, prog_name="chargeonce bench")


def main() -> None:
    """Run the command line, and end the process."""
    run_to_the_end(lambda: app(prog_name="chargeonce"))


if __name__ == "__main__":
    main()
