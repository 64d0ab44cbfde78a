"""What keys of the file of schedules have in common: durations, anchors, and how a wrong one is told."""

from collections.abc import Callable
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, Field

from worker.durations import parse_duration_seconds
from workflows.domain.anchors import FIRST, Anchor
from workflows.domain.errors import InvalidInput
from workflows.domain.periods import PeriodKind

T = TypeVar("T")

# How late a firing may still be made good by Temporal itself after an outage. What is older is for people to
# decide (`schedule sweep`): months at once would be a surprise on somebody's bank statement.
CATCH_UP_SECONDS = 3 * 86_400.0


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("a duration is a text such as 6h or 3d")  # noqa: TRY004 - pydantic reports it so
    try:
        return parse_duration_seconds(value)
    except InvalidInput as error:
        raise ValueError(error.reason) from None


Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")]
Account = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,100}$")]
Duration = Annotated[float, BeforeValidator(_seconds), Field(gt=0)]
CatchUp = Annotated[Duration, Field(ge=10, le=366 * 86_400)]


def anchor_of(value: str | int | None, kind: PeriodKind) -> Anchor:
    """Return the day on which a period begins. Raises ValueError, as pydantic wants it."""
    if value is None:
        return FIRST
    if kind is PeriodKind.DAY:
        raise ValueError("anchor: days begin at midnight and have none")
    return said("anchor", Anchor.of_week if kind is PeriodKind.WEEK else Anchor.of_month, str(value))


def said(key: str, parse: Callable[[str], T], text: str) -> T:
    """Return what `parse` makes of a key's text. Raises ValueError that names the key."""
    try:
        return parse(text)
    except InvalidInput as error:
        raise ValueError(f"{key}: {error.reason}") from None
