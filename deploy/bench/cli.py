"""`chargeonce bench`: ratios inside one run of the command, on the same machine, from real parts.

A workflow engine that is not among the project's dependencies (DBOS) is left out of the comparison.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli import AsJson
from worker.console_output import Output
from worker.failures import reported
from worker.help_examples import examples

if TYPE_CHECKING:
    from deploy.bench.plan import BenchPlan

# ruff: noqa: PLC0415 - --help needs none of the heavy modules

app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)


@app.command(epilog=examples("bench --quick", "bench --quick --style raw --json", "bench"))
def bench(
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only against the unsafe loop; about two minutes.")
    ] = False,
    style: Annotated[
        str | None, typer.Option(help="Only this style of SDK call: raw or typed; both if left out.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, max=600, help="How long one repetition is to take, about.")
    ] = None,
    repetitions: Annotated[
        int | None, typer.Option(min=1, max=100, help="How often each is repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure durable runs against a loop without safety; in full also limits, a kill, and activities."""
    output = Output(as_json=as_json)
    with reported(output):
        from deploy.bench.plan import full_plan, quick_plan

        plan = (quick_plan if quick else full_plan)(style=style, seconds=seconds, repetitions=repetitions)
        run_bench(output, plan)


def run_bench(output: Output, plan: "BenchPlan") -> None:
    """Measure what `plan` says in a home of its own, and print the report.

    Raises:
        BookDisagrees: The simulator's book does not show that everybody was charged once.
    """
    from deploy.bench.measure import measure
    from deploy.bench.report import render_report

    home = Path(tempfile.mkdtemp(prefix="chargeonce-bench-"))
    try:
        report = asyncio.run(measure(home, plan, output.notice))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    output.result(report.model_dump(mode="json"), lambda: render_report(report))
