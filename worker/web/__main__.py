"""`python -m worker.web` is what `chargeonce web` is, for a stack that starts and kills it."""

import asyncio
import sys

import uvloop

from worker.web.server import log_to_stderr, run_web
from worker.web.settings import load_web_settings
from workflows.domain.errors import RefusedToStart


def main() -> int:
    """Run a receiver until it is told to stop; 4 where it refused to start."""
    log_to_stderr()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_web(load_web_settings()))
    except RefusedToStart as refusal:
        print(refusal, file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
