"""`chargeonce sim`, also `python -m deploy.stripe_sim`: run a simulator and speak to one."""

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from deploy.stripe_sim.client import ClientError, call_sim, seed_file
from deploy.stripe_sim.faults import FaultPlanError, read_plan
from deploy.stripe_sim.settings import Settings, SettingsError
from deploy.stripe_sim.webhook_plan import WebhookPlanError, parse_webhook_plan, read_webhook_plan

EXIT_DRIFT: Final = 3
EXIT_REFUSED: Final = 4
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def _examples(*commands: str) -> str:
    """Return an epilog with one example a line, which nothing fills up."""
    return "\n".join(["\b", "Examples:", *(f"  chargeonce {command}" for command in commands)])


app = typer.Typer(
    name="sim",
    no_args_is_help=False,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A stateful Stripe on this machine: keys, faults, a clock that moves, and a book of the money.",
)
faults_app = typer.Typer(help="The fault plan.", no_args_is_help=True, rich_markup_mode=None)
clock_app = typer.Typer(help="The simulator's clock.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(faults_app, name="faults")
app.add_typer(clock_app, name="clock")

Url = Annotated[
    str | None,
    typer.Option(
        "--url", envvar="STRIPE_SIM_URL", help="Where the simulator listens, e.g. http://127.0.0.1:12111."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


@app.callback(
    invoke_without_command=True,
    epilog=_examples(
        "sim --port 12111",
        "sim --port 0 --state-dir ./stripe --seed 7 --faults drill.json",
        "sim seed charges.csv --url http://127.0.0.1:12111",
    ),
)
def serve(
    context: typer.Context,
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 12111,
    state_dir: Annotated[
        Path | None, typer.Option(help="Keep everything here; without it, in memory only.")
    ] = None,
    api_key: Annotated[
        list[str] | None, typer.Option(help="Accept this key only; may be given again.")
    ] = None,
    account: Annotated[str | None, typer.Option(help="Id of the simulator's own account.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of all ids and dice; drawn and printed if left out.")
    ] = None,
    faults: Annotated[Path | None, typer.Option(help="Fault plan to start with, as JSON.")] = None,
    latency_ms: Annotated[float | None, typer.Option(help="Time that each request takes.")] = None,
    rate: Annotated[float | None, typer.Option(help="Requests a second per endpoint; 0 is no limit.")] = None,
    ready_file: Annotated[Path | None, typer.Option(help='Write {"url": ...} here once it listens.')] = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C; with a subcommand, speak to a simulator that runs."""
    if context.invoked_subcommand is not None:
        return
    # A server is slow to import, and all the others are clients.
    from deploy.stripe_sim.serving import run_until_signal  # noqa: PLC0415 - see above
    from deploy.stripe_sim.simulator import Simulator  # noqa: PLC0415 - see above

    changes: dict[str, Any] = {
        "account": account,
        "accept_keys": api_key or None,
        "latency_ms": latency_ms,
        "endpoint_rate_per_second": rate,
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    try:
        simulator = Simulator(state_dir=state_dir, seed=seed, settings=Settings().with_changes(changes))
        simulator.settings = simulator.settings.with_changes(changes)
        if faults is not None:
            simulator.faults.replace(read_plan(faults))
            simulator.courier.replace_faults(read_webhook_plan(faults))
        run_until_signal(simulator, host=host, port=port, ready_file=ready_file)
    except (SettingsError, FaultPlanError, WebhookPlanError, OSError) as error:
        _refuse(str(error))


@app.command(epilog=_examples("sim seed charges.csv", "sim seed charges.csv --json --account acct_shop"))
def seed(
    file: Annotated[Path, typer.Argument(help="CSV with a header: customer, optionally payment_method.")],
    *,
    url: Url = None,
    account: Annotated[
        str | None, typer.Option(help="Account to seed; the simulator's own if left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the customers and cards that a source file names; what is there already stays."""
    try:
        counts = seed_file(_need_url(url), file, account)
    except ClientError as error:
        _refuse(str(error), exit_code=1)
    text = (
        f"{counts['rows']} rows: {counts['customers']} new customers, {counts['payment_methods']} new cards"
    )
    _print(counts, text, as_json=as_json)


@app.command(epilog=_examples("sim book", "sim book --identity charge_identity --json"))
def book(
    *,
    url: Url = None,
    identity: Annotated[
        str | None, typer.Option(help="Metadata key that says what a payment pays for.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Sum up what really happened; exits 3 when anyone was charged twice for one identity."""
    query = "" if identity is None else f"?identity={identity}"
    summary = _call(url, "GET", f"/_sim/book/summary{query}")
    lines = [f"{name}: {value}" for name, value in summary.items() if name != "double_charges"]
    lines += [f"double charge: {json.dumps(double)}" for double in summary["double_charges"]]
    _print(summary, "\n".join([*lines, f"double charges: {len(summary['double_charges'])}"]), as_json=as_json)
    if summary["double_charges"]:
        raise typer.Exit(EXIT_DRIFT)


@app.command(epilog=_examples("sim journal", "sim journal --since 100 --limit 20 --json"))
def journal(
    *,
    url: Url = None,
    since: Annotated[int, typer.Option(min=0, help="Start after this request.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show the requests that were on the wire."""
    shown = _call(url, "GET", f"/_sim/journal?since={since}&limit={limit}")
    lines = [
        f"{entry['ordinal']:>7}  {entry['status'] or '---'}  {entry['method']:<4} {entry['path']}  "
        f"{entry['key'] or '-'}  {entry['fate']} {' '.join(entry['faults'])}".rstrip()
        for entry in shown["requests"]
    ]
    _print(shown, "\n".join([*lines, f"{shown['total']} requests in all"]), as_json=as_json)


@app.command(epilog=_examples("sim webhooks", "sim webhooks --limit 20 --json"))
def webhooks(
    *,
    url: Url = None,
    since: Annotated[int, typer.Option(min=0, help="Start after this attempt.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show the attempts to deliver webhooks."""
    shown = _call(url, "GET", f"/_sim/webhooks/deliveries?since={since}&limit={limit}")
    lines = [
        f"{entry['status'] or '---'}  {entry['type']:<32} {entry['event']}  try {entry['attempt']}  "
        f"{entry['outcome']}  {entry['url']} {' '.join(entry['faults'])}".rstrip()
        for entry in shown["deliveries"]
    ]
    _print(shown, "\n".join([*lines, f"{shown['total']} attempts in all"]), as_json=as_json)


@faults_app.command("show", epilog=_examples("sim faults show --json"))
def show_faults(*, url: Url = None, as_json: AsJson = False) -> None:
    """Show the faults in force and how often each was met."""
    _print_faults(_call(url, "GET", "/_sim/faults"), as_json=as_json)


@faults_app.command("set", epilog=_examples("sim faults set drill.json"))
def set_faults(
    file: Annotated[Path, typer.Argument(help="Fault plan as JSON.")],
    *,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Put the faults of a file in force, instead of those that are."""
    try:
        document = {
            "faults": [fault.show() for fault in read_plan(file)],
            "webhooks": [fault.show() for fault in parse_webhook_plan(read_webhook_plan(file))],
        }
    except (FaultPlanError, WebhookPlanError) as error:
        _refuse(str(error), exit_code=2)
    _print_faults(_call(url, "PUT", "/_sim/faults", document), as_json=as_json)


@faults_app.command("clear", epilog=_examples("sim faults clear"))
def clear_faults(*, url: Url = None, as_json: AsJson = False) -> None:
    """Let everything go well from now on."""
    _print_faults(_call(url, "DELETE", "/_sim/faults"), as_json=as_json)


@clock_app.command("show", epilog=_examples("sim clock show"))
def show_clock(*, url: Url = None, as_json: AsJson = False) -> None:
    """Show the simulated time."""
    clock = _call(url, "GET", "/_sim/clock")
    _print(
        clock, f"now {clock['now']:.3f}, {clock['offset_seconds']:.0f} s ahead of real time", as_json=as_json
    )


@clock_app.command("advance", epilog=_examples("sim clock advance 25h"))
def advance_clock(
    duration: Annotated[str, typer.Argument(help="Such as 90s, 15m, 25h or 3d.")],
    *,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Move the simulated time on; what falls due happens."""
    clock = _call(url, "POST", "/_sim/clock", {"advance_seconds": parse_duration_seconds(duration)})
    _print(
        clock, f"now {clock['now']:.3f}, {clock['offset_seconds']:.0f} s ahead of real time", as_json=as_json
    )


def _describe_clock(clock: Any) -> str:
    stands = "" if clock["frozen_at"] is None else ", frozen"
    return f"now {clock['now']:.3f}, {clock['offset_seconds']:.0f} s ahead of real time{stands}"


def parse_duration_seconds(text: str) -> float:
    """Return the seconds of a duration such as 90s, 15m, 25h, 3d; raises typer.BadParameter."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no duration; write 90s, 15m, 25h or 3d")
    return float(match[1]) * _UNITS[match[2]]


def _need_url(url: str | None) -> str:
    if not url:
        _refuse(
            "no simulator named: give --url or set STRIPE_SIM_URL (and start one with `sim --port 12111`)"
        )
    return url


def _call(url: str | None, method: str, path: str, document: Any = None) -> Any:
    try:
        return call_sim(_need_url(url), method, path, document)
    except ClientError as error:
        _refuse(str(error), exit_code=1)


def _print_faults(shown: Any, *, as_json: bool) -> None:
    lines = [
        f"{fault['name']}: {fault['effect']['kind']} {fault['place']}, "
        f"met {shown['counts'][fault['name']]['matched']}, fired {shown['counts'][fault['name']]['fired']}"
        for fault in shown["faults"]
    ]
    _print(shown, "\n".join(lines) or "no faults", as_json=as_json)


def _print(document: Any, text: str, *, as_json: bool) -> None:
    print(json.dumps(document) if as_json else text)


def _refuse(message: str, *, exit_code: int = EXIT_REFUSED) -> NoReturn:
    print(message, file=sys.stderr)
    raise typer.Exit(exit_code)
