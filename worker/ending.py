"""How a command's process ends: at once, with its exit code, when all that it had to say is written.

The Temporal SDK's runtime has threads that nothing stops. One that lets go of a Python object while the
interpreter is being taken down aborts the process (SIGABRT), after the command has done its work and printed
its result: measured on a busy machine, and seen by scripts as a failure. So the interpreter is not taken
down. Every command closes what it opened before it returns; nothing here relies on atexit.
"""

import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn


def run_to_the_end(command: Callable[[], object]) -> NoReturn:
    """Run a command, flush what it wrote, and end the process with its exit code (1 for an exception)."""
    exit_code = 0
    try:
        command()
    except SystemExit as end:
        exit_code = _read_exit_code(end)
    except BaseException:  # noqa: BLE001 - the process ends here, and its last words are wanted
        traceback.print_exc()
        exit_code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            exit_code = exit_code or 1  # nobody reads: what was to be said is lost
    os._exit(exit_code)


def _read_exit_code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1
