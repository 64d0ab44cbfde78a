"""The ordinary proxy process, except that it kills itself with SIGKILL at one named point.

`CRASH_AT` is `point` or `point:nth`, the nth time the point is reached.
"""

import os
import signal

from activities.crash_points import ProxyPoint, install
from worker.proxy.__main__ import main as run


def die_at(spec: str) -> None:
    """Arrange for this process to die at `spec`."""
    name, _, nth = spec.partition(":")
    wanted, remaining = ProxyPoint(name), int(nth or 1)

    def hook(point: object) -> None:
        nonlocal remaining
        if point is wanted:
            remaining -= 1
            if remaining == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    install(hook)


def main() -> int:
    """Run a proxy."""
    if spec := os.environ.get("CRASH_AT"):
        die_at(spec)
    return run()
