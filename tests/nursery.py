"""`python -m tests.nursery MODULE ...`: has these modules imported, and forks a process per line of input.

A process that lives for a second must not take two to start, and importing takes most of a start. Each line
is a JSON object: `call` ("module:function"), `arguments`, `environment`, `output` and `errors` (files that
are appended to), and `ended`, the file that gets the exit code (negative: the signal that ended it). The
answer is the pid. What still runs when the input ends is killed. `tests.forking` is the other end.
"""

import gc
import json
import os
import signal
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

from worker.ending import run_to_the_end

_ended: dict[int, Path] = {}


def serve() -> None:
    """Fork until the input ends."""
    for name in sys.argv[1:]:
        import_module(name)
    assert threading.active_count() == 1, "a fork would lose the other threads"
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, lambda *_: _reap())
    for line in sys.stdin:
        print(_fork(json.loads(line)), flush=True)
    for pid in list(_ended):
        os.kill(pid, signal.SIGKILL)


def _fork(order: dict[str, Any]) -> int:
    # No child may end before it is known.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        _become(order)
    _ended[pid] = Path(order["ended"])
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    return pid


def _reap() -> None:
    while _ended:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        path = _ended.pop(pid)
        draft = path.with_suffix(".draft")
        draft.write_text(str(os.waitstatus_to_exitcode(status)), "ascii")
        draft.rename(path)


def _become(order: dict[str, Any]) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, name in ((1, "output"), (2, "errors")):
        os.dup2(os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), descriptor)
    os.environ.clear()
    os.environ.update(order["environment"])
    module, _, function = order["call"].partition(":")
    sys.argv = [module, *order["arguments"]]
    run_to_the_end(lambda: sys.exit(getattr(import_module(module), function)()))


if __name__ == "__main__":
    serve()
