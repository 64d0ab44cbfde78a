"""`python -m deploy.stripe_sim.proof`: what the simulator can do, tried and measured.

Exits 1 when a fault did not do what it says, or a goal was missed.
"""

import argparse
import asyncio
import sys
from dataclasses import dataclass, field
from typing import Any, Final

from deploy.stripe_sim.faults import EFFECT_KINDS
from deploy.stripe_sim.proof.fault_trials import TRIALS, Outcome, try_fault
from deploy.stripe_sim.proof.scale import measure_restart, measure_scale, show_milestone
from deploy.stripe_sim.proof.speed import measure_speed
from deploy.stripe_sim.routes import ENDPOINTS

REQUESTS_PER_SECOND_GOAL: Final = 1_000
BYTES_PER_INTENT_GOAL: Final = 2_048


@dataclass
class Report:
    """Prints as it goes, and remembers what fell short."""

    shortfalls: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        """Print a line at once."""
        print(line, flush=True)

    def expect(self, what: str, *, holds: bool) -> None:
        """Remember what does not hold."""
        if not holds:
            self.shortfalls.append(what)
            self.say(f"  FELL SHORT: {what}")

    def table(self, rows: list[dict[str, Any]]) -> None:
        """Print rows under their names."""
        widths = {name: max(len(name), *(len(str(row[name])) for row in rows)) for name in rows[0]}
        self.say("  " + "  ".join(name.rjust(width) for name, width in widths.items()))
        for row in rows:
            self.say("  " + "  ".join(str(row[name]).rjust(width) for name, width in widths.items()))


def try_faults(report: Report) -> None:
    """Try every kind of fault at every place."""
    places = {(trial.kind, trial.place) for trial in TRIALS}
    report.say(f"faults: {len(EFFECT_KINDS)} kinds, {len(places)} kinds x places, {len(TRIALS)} trials")
    for trial in TRIALS:
        outcome = asyncio.run(try_fault(trial))
        wanted = Outcome(trial.told, trial.moved, trial.again, trial.later)
        report.say(
            f"  {trial.name:45} told {outcome.told:15} moved {outcome.moved}  same key: {outcome.again:13} "
            f"later {outcome.later}"
        )
        report.expect(f"{trial.name}: {outcome} instead of {wanted}", holds=outcome == wanted)


def measure(report: Report, *, requests: int, counts: tuple[int, ...], restart: int) -> None:
    """Measure speed over sockets, and cost, pause and memory as the store grows."""
    report.say(f"speed, {requests:,} requests over sockets:")
    for speed in measure_speed(requests):
        report.say(
            f"  {speed.step:8} {speed.per_cpu_second:6.0f}/s on one core, {speed.cpu_us:.0f} us of CPU each; "
            f"{speed.per_second:.0f}/s by the clock on this machine now"
        )
        report.expect(
            f"{REQUESTS_PER_SECOND_GOAL} {speed.step}s a second",
            holds=speed.per_cpu_second >= REQUESTS_PER_SECOND_GOAL,
        )
    report.say("growth, in CPU time, each PaymentIntent created and confirmed under keys of its own:")
    milestones = measure_scale(counts)
    report.table([show_milestone(milestone) for milestone in milestones])
    for milestone in milestones:
        report.expect(
            f"at most {BYTES_PER_INTENT_GOAL} bytes of memory each at {milestone.intents:,}",
            holds=milestone.bytes_per_intent <= BYTES_PER_INTENT_GOAL,
        )
    report.say(f"restart: {measure_restart(restart):.1f} s of CPU for {restart:,} paid PaymentIntents")


def main() -> int:
    """Run the proof and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.stripe_sim.proof", description=__doc__)
    parser.add_argument("--objects-max", type=int, default=1_000_000, help="size of the largest store")
    parser.add_argument("--requests", type=int, default=20_000, help="requests to measure speed with")
    given = parser.parse_args()
    counts = tuple(count for count in (10_000, 100_000, 1_000_000) if count <= given.objects_max)
    report = Report()
    report.say(f"endpoints: {len(ENDPOINTS)}")
    try_faults(report)
    counts = counts or (max(500, given.objects_max // 500 * 500),)
    measure(report, requests=given.requests, counts=counts, restart=min(100_000, counts[-1]))
    report.say("nothing fell short" if not report.shortfalls else f"{len(report.shortfalls)} fell short")
    return 1 if report.shortfalls else 0


if __name__ == "__main__":
    sys.exit(main())
