"""A request as it came in and an answer as it goes out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request; names of headers are in lower case, and for a GET `form` is the query string."""

    method: str
    path: str
    headers: Mapping[str, str]
    form: bytes
    key: str | None
    key_name: str | None
    account: str


@dataclass(frozen=True, slots=True)
class Pacing:
    """How a body leaves when it does not leave whole: `cut` after its half, stalled there, or in crumbs."""

    stall_seconds: float = 0.0
    drip_seconds: float = 0.0
    cut: Literal["closed", "reset"] | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An answer. Without a status there is none, and `pacing.cut` says how the connection ends."""

    status: int | None
    body: bytes
    headers: dict[str, str]
    pacing: Pacing | None = None


DROPPED: Final = Outgoing(None, b"", {}, Pacing(cut="closed"))
RESET: Final = Outgoing(None, b"", {}, Pacing(cut="reset"))
