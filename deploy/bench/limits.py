"""How much of an account's rate limit a run uses, and how often Stripe says 429 once it is warm."""

import asyncio
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from deploy.bench.book import read_journal
from deploy.bench.durable import Bench, running_bench
from deploy.stripe_sim.client import call_sim
from workflows.domain.errors import invariant

CREATE_PATH = "/v1/payment_intents"
SEEDED_AHEAD = 1.2  # the run is a little longer than what is looked at, so that its end is not in the picture


class LimitReport(BaseModel):
    """One rate, of worker and simulator alike. Shares and 429s are of the time after the warm-up."""

    model_config = ConfigDict(frozen=True)

    rate_per_second: float
    seconds: float
    share_create: float
    share_confirm: float
    too_many_requests: int
    too_many_requests_in_warm_up: int


async def measure_limits(
    home: Path, rates_per_second: tuple[float, ...], *, seconds: float, warm_up_seconds: float
) -> list[LimitReport]:
    """Run once for each rate, each on a stack of its own."""
    reports = []
    for number, rate in enumerate(rates_per_second):
        async with running_bench(home / f"limit-{number}", {"rate_per_second": str(rate)}) as bench:
            reports.append(await _measure(bench, rate, seconds, warm_up_seconds))
    return reports


async def _measure(bench: Bench, rate: float, seconds: float, warm_up_seconds: float) -> LimitReport:
    await asyncio.to_thread(
        call_sim, bench.url, "PATCH", "/_sim/settings", {"endpoint_rate_per_second": rate}
    )
    await bench.run("r", max(2, round(rate * (seconds + warm_up_seconds) * SEEDED_AHEAD)))
    posts = [entry for entry in read_journal(bench.url, 0) if entry["method"] == "POST"]
    creates = [entry for entry in posts if entry["path"] == CREATE_PATH]
    confirms = [entry for entry in posts if entry["path"].endswith("/confirm")]
    begins = creates[0]["received_at"] + warm_up_seconds
    limited = [entry for entry in posts if entry["status"] == 429]
    early = sum(entry["received_at"] < begins for entry in limited)
    return LimitReport(
        rate_per_second=rate,
        seconds=seconds,
        share_create=_share(creates, begins, seconds, rate),
        share_confirm=_share(confirms, begins, seconds, rate),
        too_many_requests=len(limited) - early,
        too_many_requests_in_warm_up=early,
    )


def _share(requests: list[dict[str, Any]], begins: float, seconds: float, rate: float) -> float:
    """Return what share of `rate` was let through, from the first to the last request of the span."""
    times = [
        entry["received_at"]
        for entry in requests
        if begins <= entry["received_at"] < begins + seconds and entry["status"] != 429
    ]
    invariant(len(times) >= 2, "a rate needs two requests")
    seen_seconds: float = times[-1] - times[0]
    return round((len(times) - 1) / seen_seconds / rate, 4)
