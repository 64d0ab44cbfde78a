"""`python -m tests.proxy.nursery`: has everything imported, and forks a proxy process per line on its input.

A proxy that is killed again and again must be back in a moment, and importing takes most of a start. Each
line is a JSON object of `environment` and `log`; the answer is the pid.
"""

import json
import os
import signal
import sys

from tests.proxy.dying_proxy import main


def serve() -> None:
    """Fork until the input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(order)
        print(child, flush=True)


def _become(order: dict[str, object]) -> None:
    log = os.open(str(order["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    silence = os.open(os.devnull, os.O_RDONLY)
    os.dup2(silence, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(order["environment"])  # type: ignore[call-overload]  # a JSON object of texts
    code = 1
    try:
        code = main()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve()
