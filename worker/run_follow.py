"""Wait with a run on the command line, and report how it ended or why it still waits."""

import asyncio
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import typer

from activities.ledger.database import Pool
from activities.ledger.outcomes import reasons_of_outcomes
from activities.ledger.runs import RunLedger
from worker.console_output import Output
from worker.failures import EXIT_FAILED
from worker.json_over_http import NoAnswer, ask_json
from worker.progress_display import progress_display
from worker.run_view import (
    describe_wait,
    name_state,
    render_counts,
    render_reasons,
    render_totals,
    sum_up_outcomes,
    totals_of,
)
from worker.settings import Settings
from worker.temporal_client import RunHandle
from worker.waiting import PERSON_SECONDS, wait_for_run

if TYPE_CHECKING:
    from rich.console import RenderableType

SIMULATOR_VARIABLE = "STRIPE_SIM_URL"


async def follow_run(
    output: Output,
    handle: RunHandle,
    pool: Pool,
    settings: Settings,
    *,
    person_seconds: float = PERSON_SECONDS,
) -> None:
    """Show progress until the run has closed or only waits, then print its result.

    `person_seconds` is how long a run that waits for a person is stayed with.

    Raises:
        typer.Exit: 1: the run is not finished, since what is left waits for its due time.
        CommandFailed: The run refused its period, or failed.
    """
    ledger = RunLedger(pool)
    try:
        with progress_display() as display:
            waited = await wait_for_run(
                ledger, handle, display=display, notice=output.notice, person_seconds=person_seconds
            )
    except asyncio.CancelledError:
        output.notice(f"the run goes on without this command: chargeonce run show {handle.id}")
        raise
    document = {
        **waited.view.document(),
        "totals": await totals_of(ledger, handle.id),
        "reasons": await reasons_of_outcomes(pool, [handle.id]),
        "seconds": waited.seconds,
        "rate_per_second": waited.rate_per_second,
        "settings": await asyncio.to_thread(describe_settings, settings),
        "backstop": settings.proxy_url is not None,
    }
    output.result(document, lambda: _render(document))
    if not waited.ended:
        raise typer.Exit(EXIT_FAILED)


def describe_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings that a rate depends on, with the simulator's limits where there is one. Blocks."""
    return {
        "rate_per_second": settings.rate_per_second,
        "requests_at_once": settings.requests_at_once,
        "slices_at_once": settings.slices_at_once,
        "timing": settings.timing.value,
        "simulator": _simulator_limits(),
    }


def _simulator_limits() -> dict[str, Any] | None:
    url = os.environ.get(SIMULATOR_VARIABLE)
    if not url:
        return None
    try:
        limits = ask_json(url, "GET", "/_sim/settings")
    except NoAnswer:
        return None
    return {
        name: value
        for name, value in limits.items()
        if name in {"endpoint_rate_per_second", "endpoint_rates", "latency_ms"}
    }


def _render(document: Mapping[str, Any]) -> Iterable["RenderableType"]:
    yield f"{document['run']}: {name_state(document)}"
    if document["lines"]:
        yield sum_up_outcomes(document)
    yield from render_counts(document)
    yield from render_totals(document["totals"])
    yield from render_reasons(document["reasons"])
    settings = document["settings"]
    yield (
        f"{document['seconds']:.1f} s, {document['rate_per_second']} charges/s; "
        f"set to at most {settings['rate_per_second']:g} requests/s per account and endpoint"
    )
    if settings["simulator"] is not None:
        rate = settings["simulator"]["endpoint_rate_per_second"]
        yield f"simulator: {f'{rate:g} requests/s per endpoint' if rate else 'no rate limit'}"
    if wait := describe_wait(document):
        yield wait
