import subprocess
import sys

import pytest

PROGRAM = """
import atexit, os, sys
from worker.ending import run_to_the_end
atexit.register(os.abort)  # stands for a thread that does not survive the end of the interpreter
def command():
    print("said")
    {ending}
run_to_the_end(command)
"""


@pytest.mark.parametrize(
    ("ending", "exit_code"),
    [
        ("pass", 0),
        ("sys.exit()", 0),
        ("sys.exit(4)", 4),
        ("sys.exit('because')", 1),
        ("raise ValueError('broken')", 1),
        ("raise KeyboardInterrupt", 1),
    ],
)
def test_a_command_ends_with_its_own_exit_code(ending: str, exit_code: int) -> None:
    """What happens while an interpreter is taken down can't change what a command says and returns."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(ending=ending)], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (exit_code, "said\n")
    assert ("because" in ended.stderr) == ("because" in ending)
    assert ("Traceback" in ended.stderr) == ending.startswith("raise")
