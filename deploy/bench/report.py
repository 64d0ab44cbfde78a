"""The report for people."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from deploy.bench.measure import BenchReport
from deploy.bench.pairs import PairReport
from worker.console_output import table

if TYPE_CHECKING:
    from rich.console import RenderableType


def render_report(report: BenchReport) -> Iterator["RenderableType"]:
    """Yield what was measured, table by table; nothing is said about what was not."""
    machine = report.machine
    libraries = ", ".join(f"{name} {version}" for name, version in machine.libraries.items())
    yield (
        f"{machine.cores} cores, {machine.processor}, {machine.system}, Python {machine.python}; {libraries}."
        f" Load average before: {machine.load_before:g}."
    )
    yield "Medians (least-most). Only ratios carry over to other machines."
    for pair in report.pairs:
        yield ""
        yield from _render_pair(pair)
    if report.limits:
        yield ""
        yield table(
            ("limit per s", "share of it, create", "share of it, confirm", "429 after warm-up", "429 in it"),
            [
                (one.rate_per_second, one.share_create, one.share_confirm, one.too_many_requests,
                 one.too_many_requests_in_warm_up)
                for one in report.limits
            ],
            title="One worker under a rate limit, by the simulator's journal",
        )  # fmt: skip
    if report.kill is not None:
        kill = report.kill
        yield ""
        yield (
            f"Worker killed with {kill.in_flight} sends in flight for {kill.customers_affected} customers:"
            f" {kill.repeated_requests} requests repeated, {kill.lookups} lookups; "
            f"{kill.payments} of {kill.charges} payments in the book, {kill.double_charges} double charges."
        )
    if report.per_call is not None:
        other = report.per_call
        yield ""
        yield (
            f"{other.charges} charges with an activity per Stripe call: {other.per_call_rate:g} per second; "
            f"as a durable run: {other.durable_rate:g}; {other.ratio:g} times as fast. DBOS was not measured."
        )


def _render_pair(pair: PairReport) -> Iterator["RenderableType"]:
    rows = [
        ("unsafe loop", str(pair.loop_rate), "1", str(pair.loop_cpu_ms_per_charge)),
        (
            "durable run, charging",
            str(pair.durable_charging_rate),
            str(pair.ratio_charging),
            str(pair.durable_cpu_ms_per_charge["worker"]),
        ),
        ("durable run, start to closed", str(pair.durable_whole_rate), str(pair.ratio_whole), ""),
    ]
    yield table(
        ("", "charges per s", "ratio", "its CPU, ms per charge"),
        rows,
        title=(
            f"{pair.call_style} SDK calls, {pair.at_once} requests at once, {pair.charges} charges, "
            f"{pair.repetitions} repetitions each, alternating"
        ),
    )
    others = (
        f"{part} {spread}" for part, spread in pair.durable_cpu_ms_per_charge.items() if part != "worker"
    )
    yield f"CPU of the other parts in a durable run, ms per charge: {', '.join(others)}"
