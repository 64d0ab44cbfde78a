"""The moments at which a process may die, by name.

In production `reach` does nothing. A crash test's worker installs a hook that kills the process at one of
them; another test fails if a point has no crash test.
"""

from collections.abc import Callable
from enum import StrEnum


class CrashPoint(StrEnum):
    """Before and after each commit and each request of the send path, and around planning and close."""

    CREATE_BEFORE_INTENT = "create_before_intent"
    CREATE_AFTER_INTENT = "create_after_intent"
    CREATE_BEFORE_REQUEST = "create_before_request"
    CREATE_AFTER_REQUEST = "create_after_request"
    CREATE_BEFORE_RECORD = "create_before_record"
    CREATE_AFTER_RECORD = "create_after_record"
    CONFIRM_BEFORE_INTENT = "confirm_before_intent"
    CONFIRM_AFTER_INTENT = "confirm_after_intent"
    CONFIRM_BEFORE_REQUEST = "confirm_before_request"
    CONFIRM_AFTER_REQUEST = "confirm_after_request"
    CONFIRM_BEFORE_RECORD = "confirm_before_record"
    CONFIRM_AFTER_RECORD = "confirm_after_record"
    LOCK_BEFORE_COMMIT = "lock_before_commit"
    LOCK_AFTER_COMMIT = "lock_after_commit"
    PLAN_WHILE_STREAMING = "plan_while_streaming"
    PLAN_BEFORE_COMMIT = "plan_before_commit"
    PLAN_AFTER_COMMIT = "plan_after_commit"
    SLICE_AFTER_CLAIM = "slice_after_claim"
    SETTLE_AFTER_LOOKUP = "settle_after_lookup"
    SETTLE_AFTER_APPLY = "settle_after_apply"
    CLOSE_BEFORE_COMMIT = "close_before_commit"
    CLOSE_AFTER_COMMIT = "close_after_commit"


def _survive(_point: CrashPoint) -> None:
    return


_hook: Callable[[CrashPoint], None] = _survive


def reach(point: CrashPoint) -> None:
    """Tell the hook, if there is one, that the process is about to go on past `point`."""
    _hook(point)


def install(hook: Callable[[CrashPoint], None]) -> None:
    """Replace the hook of this process. Tests only."""
    global _hook  # noqa: PLW0603 - one hook per process, and reach() must stay as cheap as a call
    _hook = hook
