"""One error instead of a group: Temporal's history shows type and message, and a group hides both."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def first_error() -> Iterator[None]:
    """Let the first error of a task group through as itself, so that callers and operators know it."""
    try:
        yield
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
