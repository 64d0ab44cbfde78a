"""What a reply says, in the few ways that several questions to Stripe need."""

from typing import Any

from activities.gateway.calls import Reply
from workflows.domain.answer import Answer, Transport


def refusal_of(answer: Answer) -> str | None:
    """Return the code by which the credentials were refused, None where they were not."""
    refused = answer.transport is Transport.ANSWERED and answer.http_status in {401, 403}
    return (answer.code or f"HTTP {answer.http_status}") if refused else None


def describe(answer: Answer) -> str:
    """Return one line that says what an answer was, for reasons and errors."""
    parts = [str(answer.transport) if answer.http_status is None else f"HTTP {answer.http_status}"]
    parts += [part for part in (answer.error_type, answer.code, answer.message, answer.request_id) if part]
    return ", ".join(parts)


def items_of(reply: Reply) -> list[dict[str, Any]] | None:
    """Return a list's items, or None where the answer is no list."""
    items = reply.body.get("data") if reply.body is not None and reply.answer.succeeded else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return None
    return items
