"""The lists of what went back of a PaymentIntent, or is being claimed back, read into plain values."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

from activities.gateway.calls import StripeCalls
from activities.gateway.classify import AnswerReader
from activities.gateway.findings import RefundPage
from activities.gateway.requests import REFUNDS_PATH, StripeAccount, payment_intent_path
from workflows.domain.answer import METADATA_REFUND, Answer
from workflows.domain.money_back import Dispute, Found, Refund

DISPUTES_PATH = "/v1/disputes"
PAGE_SIZE_MAX = 100
PAGES_MAX = 10

Item = TypeVar("Item")


async def list_refunds(calls: StripeCalls, account: StripeAccount, payment_intent: str) -> Found[Refund]:
    """Return all refunds of a PaymentIntent."""
    return await _list(calls, account, payment_intent, REFUNDS_PATH, _read_refund)


async def list_disputes(calls: StripeCalls, account: StripeAccount, payment_intent: str) -> Found[Dispute]:
    """Return all disputes of a PaymentIntent."""
    return await _list(calls, account, payment_intent, DISPUTES_PATH, _read_dispute)


async def scan_refunds(
    calls: StripeCalls,
    account: StripeAccount,
    *,
    created_from_epoch_seconds: int,
    created_to_epoch_seconds: int | None,
) -> AsyncIterator[RefundPage]:
    """Yield pages of an account's refunds made in a span, newest first, until the last or a failed one.

    What belongs to no PaymentIntent is left out.
    """
    created = {"gte": created_from_epoch_seconds}
    if created_to_epoch_seconds is not None:
        created["lte"] = created_to_epoch_seconds
    parameters: dict[str, object] = {"created": created, "limit": PAGE_SIZE_MAX}
    while True:
        reply = await calls.get(REFUNDS_PATH, parameters, account)
        items = (reply.body or {}).get("data") if reply.answer.succeeded else None
        if not isinstance(items, list):
            yield RefundPage(
                (),
                complete=False,
                has_more=False,
                failure=said(REFUNDS_PATH, reply.answer),
                retry_after_seconds=reply.answer.retry_after_seconds,
            )
            return
        ours = [item for item in items if not (isinstance(item, dict) and item.get("payment_intent") is None)]
        known = [read_refund(calls.reader, item) for item in ours]
        refunds = tuple(one for one in known if one is not None)
        failure = None if len(refunds) == len(ours) else f"{REFUNDS_PATH}: an item of the list can't be read"
        has_more = failure is None and (reply.body or {}).get("has_more") is not False and bool(items)
        yield RefundPage(refunds, complete=failure is None, has_more=has_more, failure=failure)
        if not has_more:
            return
        parameters["starting_after"] = str(items[-1]["id"])


def read_refund(reader: AnswerReader, item: object) -> Refund | None:
    """Return a refund of a PaymentIntent, or None where it is none or can't be read."""
    if not isinstance(item, dict):
        return None
    payment_intent = reader.word(item.get("payment_intent"))
    return None if payment_intent is None else _read_refund(reader, item, payment_intent)


def said(path: str, answer: Answer) -> str:
    """Return what was answered to a question, in one line."""
    status = f"HTTP {answer.http_status}" if answer.http_status is not None else str(answer.transport)
    return f"{path}: " + ", ".join(part for part in (status, answer.code, answer.message) if part)


async def _list(
    calls: StripeCalls,
    account: StripeAccount,
    payment_intent: str,
    path: str,
    read: Callable[[AnswerReader, Mapping[str, Any], str], Item | None],
) -> Found[Item]:
    payment_intent_path(payment_intent)  # refuses what is no id
    parameters: dict[str, object] = {"payment_intent": payment_intent, "limit": PAGE_SIZE_MAX}
    items: list[Item] = []
    request_ids: list[str] = []
    for _ in range(PAGES_MAX):
        reply = await calls.get(path, parameters, account)
        answer, body = reply.answer, reply.body or {}
        request_ids += [answer.request_id] if answer.request_id else []
        page = body.get("data")
        if not answer.succeeded or not isinstance(page, list):
            return Found(tuple(items), tuple(request_ids), said(path, answer))
        known = [read(calls.reader, item, payment_intent) for item in page if isinstance(item, dict)]
        items += [item for item in known if item is not None]
        if len(page) != len(known) or None in known:
            return Found(tuple(items), tuple(request_ids), f"{path}: an item of the list can't be read")
        if body.get("has_more") is False:
            return Found(tuple(items), tuple(request_ids), stripe_epoch_seconds=answer.stripe_epoch_seconds)
        parameters["starting_after"] = page[-1]["id"] if page else ""
    return Found(tuple(items), tuple(request_ids), f"{path}: more than {PAGES_MAX} pages")


def _read_refund(reader: AnswerReader, item: Mapping[str, Any], payment_intent: str) -> Refund | None:
    refund_id, status, currency = _words(reader, item)
    amount, created = _whole(item.get("amount")), _whole(item.get("created"))
    if refund_id is None or status is None or currency is None or amount is None or created is None:
        return None
    metadata = item.get("metadata")
    return Refund(
        refund_id=refund_id,
        payment_intent=payment_intent,
        amount_minor=amount,
        currency=currency,
        status=status,
        reason=reader.word(item.get("reason")),
        failure_reason=reader.word(item.get("failure_reason")),
        created_epoch_seconds=created,
        request_id=reader.word(metadata.get(METADATA_REFUND)) if isinstance(metadata, dict) else None,
    )


def _read_dispute(reader: AnswerReader, item: Mapping[str, Any], payment_intent: str) -> Dispute | None:
    dispute_id, status, currency = _words(reader, item)
    amount, created = _whole(item.get("amount")), _whole(item.get("created"))
    if dispute_id is None or status is None or currency is None or amount is None or created is None:
        return None
    details = item.get("evidence_details")
    return Dispute(
        dispute_id=dispute_id,
        payment_intent=payment_intent,
        amount_minor=amount,
        currency=currency,
        status=status,
        reason=reader.word(item.get("reason")),
        due_epoch_seconds=_whole(details.get("due_by")) if isinstance(details, dict) else None,
        created_epoch_seconds=created,
    )


def _words(reader: AnswerReader, item: Mapping[str, Any]) -> tuple[str | None, str | None, str | None]:
    return reader.word(item.get("id")), reader.word(item.get("status")), reader.word(item.get("currency"))


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
