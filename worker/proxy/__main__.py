"""`python -m worker.proxy` is what `chargeonce proxy` is, for a stack that starts and kills it."""

import asyncio
import sys

import uvloop

from worker.proxy.server import log_to_stderr, run_proxy
from worker.proxy.settings import load_proxy_settings
from workflows.domain.errors import RefusedToStart


def main() -> int:
    """Run a proxy until it is told to stop; 4 where it refused to start."""
    log_to_stderr()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_proxy(load_proxy_settings()))
    except RefusedToStart as refusal:
        print(refusal, file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
