"""The machine that the numbers come from."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, ConfigDict

_LIBRARIES = ("stripe", "aiohttp", "asyncpg", "temporalio", "uvloop")


class Machine(BaseModel):
    """What a reader needs to judge absolute numbers. `load_before` is the load average as the bench began."""

    model_config = ConfigDict(frozen=True)

    cores: int
    processor: str
    system: str
    python: str
    libraries: dict[str, str]
    load_before: float


def describe_machine() -> Machine:
    """Return the facts of this machine."""
    return Machine(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        processor=_processor(),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        libraries={name: version(name) for name in _LIBRARIES},
        load_before=round(os.getloadavg()[0], 2),
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
