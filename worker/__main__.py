"""`python -m worker` is what `chargeonce worker` is, for a stack that starts and kills it."""

import asyncio
import sys

import uvloop

from worker.ending import run_to_the_end
from worker.environment import load_settings
from worker.temporal import run_worker
from workflows.domain.errors import RefusedToStart


def main() -> int:
    """Run a worker until it is told to stop; 4 where it refused to start."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_worker(load_settings()))
    except RefusedToStart as refusal:
        print(refusal, file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    run_to_the_end(lambda: sys.exit(main()))
