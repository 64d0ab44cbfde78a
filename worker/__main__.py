"""`python -m worker` is the worker process itself, as `chargeonce worker` starts it."""

import asyncio
import sys

import uvloop

from worker.settings import Settings
from worker.temporal import run_worker
from workflows.domain.errors import RefusedToStart


def main() -> int:
    """Run a worker until it is told to stop; 4 where it refused to start."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_worker(Settings()))
    except RefusedToStart as refusal:
        print(refusal, file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
