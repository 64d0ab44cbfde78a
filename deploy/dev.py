"""`chargeonce dev`: the whole stack in the foreground, until one Ctrl-C."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploy.attach import notice
from deploy.devstack import StackOptions, running_stack
from deploy.interrupts import StackInterrupted
from deploy.stack_info import StackInfo
from worker.console_output import Output, table

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True, kw_only=True)
class DevCommand:
    """What was typed. `rate_per_second` is per endpoint, of all workers; the simulator's limit 0 is none."""

    home: Path
    workers: int = 1
    rate_per_second: float | None = None
    simulator_latency_ms: float | None = None
    simulator_rate_per_second: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    headless: bool = False
    proxy: bool = True


async def run_dev(output: Output, command: DevCommand) -> None:
    """Run the stack, print where it is once it is healthy, and stop everything at the first signal.

    Raises RefusedToStart where a stack runs in this home already.
    """
    settings = dict(command.settings)
    if command.rate_per_second is not None:
        settings["rate_per_second"] = f"{command.rate_per_second:g}"
    arguments: list[str] = []
    if command.simulator_latency_ms is not None:
        arguments += ["--latency-ms", f"{command.simulator_latency_ms:g}"]
    if command.simulator_rate_per_second is not None:
        arguments += ["--rate", f"{command.simulator_rate_per_second:g}"]
    options = StackOptions(
        workers=command.workers,
        settings=settings,
        simulator_arguments=arguments,
        headless=command.headless,
        proxy=command.proxy,
        web=True,
        on_notice=notice,
    )
    notice(f"starting PostgreSQL, Temporal, the simulator and {command.workers} worker(s) in {command.home}")
    try:
        async with running_stack(command.home, options) as stack:
            document = _describe(stack.info)
            output.result(document, lambda: _render(document))
            await stack.serve()
            notice("stopping")
        notice("stopped; what happened stays in the home")
    except StackInterrupted:
        notice("stopped before everything was up")


def _describe(info: StackInfo) -> dict[str, Any]:
    """Return the endpoints, without the passwords and keys that `stack.json` holds."""
    return {
        "home": str(info.home),
        "pid": info.pid,
        "temporal": info.temporal_address,
        "temporal_ui": info.temporal_ui,
        "simulator": info.stripe_sim_url,
        "proxy": info.proxy_url,
        "web": info.web_url,
        "workers": [{"pid": worker.pid, "log": str(worker.log)} for worker in info.workers],
        "settings": info.settings,
    }


def _render(document: Mapping[str, Any]) -> Iterable["RenderableType"]:
    rows = [
        ("Temporal", document["temporal"]),
        ("Temporal's web UI", document["temporal_ui"] or "off"),
        ("simulated Stripe", document["simulator"]),
        ("spend-cap proxy", document["proxy"] or "off: no backstop"),
        ("webhook receiver", document["web"]),
        *((f"worker {worker['pid']}", worker["log"]) for worker in document["workers"]),
        ("home", document["home"]),
    ]
    yield table(("up", "where"), rows)
    yield "In another terminal (with the same CHARGEONCE_HOME, if you set one):"
    yield "  chargeonce sim seed charges.csv"
    yield "  chargeonce run start --period 2031-03 --source charges.csv --yes --wait"
    yield "Ctrl-C stops everything; what happened stays in the home."
