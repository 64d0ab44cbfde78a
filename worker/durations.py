"""Durations as people type them."""

import re

from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput

_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smhd])+", re.ASCII)
_PART = re.compile(r"([0-9.]+)([smhd])", re.ASCII)


def parse_duration_seconds(text: str) -> float:
    """Return the seconds of "90s", "25h" or "1h30m"; raises InvalidInput."""
    if _DURATION.fullmatch(text) is None:
        raise InvalidInput(f"{echo(text)} is no duration: write 90s, 15m, 25h, 3d or 1h30m")
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(text))
