"""How soon things are noticed, by name: what a process is set to, and what its runs are started with."""

from enum import StrEnum


class Timing(StrEnum):
    """How fast a dead worker is noticed and how long a drain may take (seconds in `workflows.policies`)."""

    PRODUCTION = "production"
    DEMO = "demo"
    TESTS = "tests"
