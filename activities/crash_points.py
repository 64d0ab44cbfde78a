"""The moments at which a process may die, by name.

In production `reach` does nothing. A crash test's worker installs a hook that kills the process at one of
them; another test fails if a point has no crash test.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any


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
    CANCEL_BEFORE_INTENT = "cancel_before_intent"
    CANCEL_AFTER_INTENT = "cancel_after_intent"
    CANCEL_BEFORE_REQUEST = "cancel_before_request"
    CANCEL_AFTER_REQUEST = "cancel_after_request"
    CANCEL_BEFORE_RECORD = "cancel_before_record"
    CANCEL_AFTER_RECORD = "cancel_after_record"
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


class RefundPoint(StrEnum):
    """Around each commit and each request of a refund."""

    BEFORE_INTENT = "refund_before_intent"
    AFTER_INTENT = "refund_after_intent"
    AFTER_REQUEST = "refund_after_request"
    AFTER_RECORD = "refund_after_record"
    AFTER_LOOKUP = "refund_after_lookup"


class ProxyPoint(StrEnum):
    """Before and after each commit, each request and each reply of the spend-cap proxy."""

    BEFORE_ADMIT = "proxy_before_admit"
    AFTER_ADMIT = "proxy_after_admit"
    BEFORE_REQUEST = "proxy_before_request"
    AFTER_REQUEST = "proxy_after_request"
    AFTER_REPLY = "proxy_after_reply"
    AFTER_ANSWER = "proxy_after_answer"


def _survive(_point: object) -> None:
    return


_hook: Callable[[Any], None] = _survive


def reach(point: CrashPoint | RefundPoint | ProxyPoint) -> None:
    """Tell the hook, if there is one, that the process is about to go on past `point`."""
    _hook(point)


def install(hook: Callable[[Any], None]) -> None:
    """Replace the hook of this process. Tests only."""
    global _hook  # noqa: PLW0603 - one hook per process, and reach() must stay as cheap as a call
    _hook = hook
