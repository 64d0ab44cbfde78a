"""The command that charges a plan that somebody has just looked at: everything typed again, and its hash."""

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.run_start import StartCommand

_LATER_RUN = re.compile(r"/r[0-9]+$")
# What a command leaves out where it is as if nothing had been typed (the options of `worker.cli.start`).
_DEFAULTS = {
    "--account": None,
    "--canary": 0,
    "--canary-max-declined": None,
    "--below-minimum": "charge",
    "--change-percent": 20.0,
    "--duration-limit": None,
    "--slice-size": 500,
    "--retry-policy": None,
}


def describe_start(command: "StartCommand", *, run_id: str, source: str, approve: str) -> str:
    """Return `chargeonce run start` with what was typed, `--approve` with this hash, and nobody asked.

    `source` is where the source can be read again: standard input was kept in a file. A preview needs no
    `--again`, while the start of what it previewed does where `run_id` is not the period's first.
    """
    typed = {
        "--account": command.account,
        "--canary": command.canary_lines,
        "--canary-max-declined": command.canary_declined_percent_max,
        "--below-minimum": command.below_minimum,
        "--change-percent": command.change_percent,
        "--duration-limit": command.duration_limit_minutes,
        "--slice-size": command.slice_lines,
        "--retry-policy": command.retry_policy,
    }
    words = ["chargeonce", "run", "start", "--period", command.period, "--source", source]
    for name, value in typed.items():
        if value != _DEFAULTS[name]:
            words += [name, f"{value:g}" if isinstance(value, float) else str(value)]
    if command.again or _LATER_RUN.search(run_id):
        words.append("--again")
    if command.skip_invalid:
        words.append("--skip-invalid")
    if command.live:
        words.append("--live")
    return shlex.join([*words, "--approve", approve])
