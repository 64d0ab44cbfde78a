"""Where time goes: processor seconds of processes and of everything below them, read from /proc."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.devstack import DevStack

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    ticks: int  # of itself and of its children that have ended


def parts_of(stack: DevStack) -> dict[str, list[int]]:
    """Return the pids of a stack's parts by name."""
    simulator = stack.simulator.pid if stack.simulator is not None else None
    pids = {
        "worker": [worker.pid for worker in stack.workers],
        "postgres": [stack.postgres.pid],
        "temporal": [stack.temporal.pid],
        "simulator": [simulator],
    }
    return {name: [pid for pid in some if pid] for name, some in pids.items()}


def read_cpu_seconds(parts: Mapping[str, list[int]]) -> dict[str, float]:
    """Return what each part has used so far, its children included; 0 for parts that are gone."""
    entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    alive = {int(entry.name): process for entry in entries if (process := _read(entry)) is not None}
    ticks = {name: sum(_add_up(alive, pid) for pid in pids) for name, pids in parts.items()}
    return {name: used / _TICKS_PER_SECOND for name, used in ticks.items()}


def per_charge_ms(before: Mapping[str, float], after: Mapping[str, float], charges: int) -> dict[str, float]:
    """Return the milliseconds that each part used per charge between two readings."""
    return {name: round(1_000 * (after[name] - before[name]) / charges, 3) for name in before}


def _add_up(alive: Mapping[int, _Process], root: int) -> int:
    if root not in alive:
        return 0
    children = [pid for pid, process in alive.items() if process.parent == root]
    return alive[root].ticks + sum(_add_up(alive, child) for child in children)


def _read(entry: Path) -> _Process | None:
    try:
        # The name in parentheses may hold anything; the numbers begin behind its last parenthesis.
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return _Process(parent=int(fields[1]), ticks=sum(int(value) for value in fields[11:15]))
