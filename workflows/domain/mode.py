"""What a run's standing lets its charges do: go on, only settle, or be canceled.

This is how senders know early; that nothing is begun against a decision is the database's work, in the
statement that commits an intent.
"""

from dataclasses import dataclass
from enum import StrEnum

from workflows.domain.states import IN_FLIGHT, NOT_STARTED, State

CHARGING_PHASES = frozenset({"charging", "settling", "retrying"})


class Mode(StrEnum):
    """What is done with the open charges of a run."""

    NORMAL = "normal"
    HELD = "held"  # nothing new: no first send, no new version; what is in flight may settle
    CANCELING = "canceling"  # nothing new but cancels, and everything that is open gets one or needs none


@dataclass(frozen=True, slots=True)
class Claims:
    """Which charges are worth claiming: by state, and of which states before their due time as well."""

    states: frozenset[State]
    before_due: frozenset[State] = frozenset()


_CLAIMS = {
    Mode.NORMAL: Claims(NOT_STARTED | IN_FLIGHT),
    Mode.HELD: Claims(IN_FLIGHT),
    # A cancel needs no window and no patience, whatever the charge was waiting for.
    Mode.CANCELING: Claims(
        NOT_STARTED | IN_FLIGHT, frozenset({State.PLANNED, State.PREPARED, State.CONFIRMING})
    ),
}


def mode_of(*, phase: str, hold: str | None, canceling: bool, restored: bool = False) -> Mode:
    """Return the mode of a run that stands like this in the ledger; of a restored one nothing is sent."""
    if restored:
        return Mode.HELD
    if canceling:
        return Mode.CANCELING
    return Mode.NORMAL if hold is None and phase in CHARGING_PHASES else Mode.HELD


def claims_of(mode: Mode) -> Claims:
    """Return what a pass in this mode claims."""
    return _CLAIMS[mode]
